package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Instant;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts SQL values to JSON and back, for the types of mergeberg's procedures and tables.
 *
 * <p>A timestamp is ISO text with an offset, a date is ISO text, and a map is an object with text keys.
 */
final class Values {
  private static final JsonNodeFactory JSON = JsonNodeFactory.instance;
  private static final long MICROS = 1_000_000;

  private Values() {}

  static JsonNode toJson(Object value, DataType type) {
    if (value == null) {
      return JSON.nullNode();
    }
    if (type instanceof StringType) {
      return JSON.textNode(value.toString());
    }
    if (type instanceof BooleanType) {
      return JSON.booleanNode((Boolean) value);
    }
    if (type instanceof IntegerType) {
      return JSON.numberNode((Integer) value);
    }
    if (type instanceof LongType) {
      return JSON.numberNode((Long) value);
    }
    if (type instanceof DoubleType) {
      return JSON.numberNode((Double) value);
    }
    if (type instanceof DateType) {
      return JSON.textNode(LocalDate.ofEpochDay((Integer) value).toString());
    }
    if (type instanceof TimestampType) {
      return JSON.textNode(Instant.EPOCH.plus((Long) value, ChronoUnit.MICROS).toString());
    }
    if (type instanceof ArrayType) {
      return array((ArrayData) value, ((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      MapData map = (MapData) value;
      ArrayNode keys = array(map.keyArray(), ((MapType) type).keyType());
      ArrayNode values = array(map.valueArray(), ((MapType) type).valueType());
      ObjectNode made = JSON.objectNode();
      for (int i = 0; i < keys.size(); i++) {
        made.set(keys.get(i).asText(), values.get(i));
      }
      return made;
    }
    throw CallFailed.bug("no argument can be of the type " + type.sql());
  }

  private static ArrayNode array(ArrayData values, DataType type) {
    ArrayNode made = JSON.arrayNode();
    for (int i = 0; i < values.numElements(); i++) {
      made.add(toJson(values.isNullAt(i) ? null : values.get(i, type), type));
    }
    return made;
  }

  /** Return Spark's internal value; {@code column} is for the error message. */
  static Object fromJson(JsonNode value, DataType type, String column) {
    if (value.isNull()) {
      return null;
    }
    if (type instanceof StringType && value.isTextual()) {
      return UTF8String.fromString(value.textValue());
    }
    if (type instanceof BooleanType && value.isBoolean()) {
      return value.booleanValue();
    }
    if (type instanceof IntegerType && value.isIntegralNumber() && value.canConvertToInt()) {
      return value.intValue();
    }
    if (type instanceof LongType && value.isIntegralNumber() && value.canConvertToLong()) {
      return value.longValue();
    }
    if (type instanceof DoubleType && value.isNumber()) {
      return value.doubleValue();
    }
    if (type instanceof DateType && value.isTextual()) {
      return (int) LocalDate.parse(value.textValue()).toEpochDay();
    }
    if (type instanceof TimestampType && value.isTextual()) {
      Instant at = OffsetDateTime.parse(value.textValue()).toInstant();
      // ChronoUnit.MICROS.between computes with nanoseconds, which overflow in the year 2262.
      return Math.addExact(Math.multiplyExact(at.getEpochSecond(), MICROS), at.getNano() / 1000);
    }
    if (type instanceof ArrayType && value.isArray()) {
      return new GenericArrayData(elements(value, ((ArrayType) type).elementType(), column));
    }
    if (type instanceof MapType && value.isObject()) {
      return map(value, (MapType) type, column);
    }
    String what = "the result has " + value.getNodeType() + " in the column " + column + " of type " + type.sql();
    throw CallFailed.bug(what);
  }

  private static Object[] elements(JsonNode values, DataType type, String column) {
    Object[] made = new Object[values.size()];
    for (int i = 0; i < made.length; i++) {
      made[i] = fromJson(values.get(i), type, column);
    }
    return made;
  }

  private static MapData map(JsonNode value, MapType type, String column) {
    Object[] keys = new Object[value.size()];
    Object[] values = new Object[value.size()];
    int at = 0;
    for (Map.Entry<String, JsonNode> entry : value.properties()) {
      keys[at] = fromJson(JSON.textNode(entry.getKey()), type.keyType(), column);
      values[at++] = fromJson(entry.getValue(), type.valueType(), column);
    }
    return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
  }
}
