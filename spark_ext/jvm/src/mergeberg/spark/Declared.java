package mergeberg.spark;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.InputStream;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** Reads the declarations of procedures and system tables from the jar's resource, which Python generates. */
final class Declared {
  static final String NAMESPACE = "system";
  // Python's JSON has NaN and Infinity, which standard JSON lacks.
  static final ObjectMapper JSON =
      JsonMapper.builder()
          .enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS)
          .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
          .build();

  private static final Map<String, JsonNode> PROCEDURES = new LinkedHashMap<>();
  private static final Map<String, JsonNode> TABLES = new LinkedHashMap<>();

  static {
    try (InputStream file = Declared.class.getResourceAsStream("declared.json")) {
      JsonNode root = JSON.readTree(file);
      root.get("procedures").forEach(one -> PROCEDURES.put(one.get("name").asText(), one));
      root.get("tables").forEach(one -> TABLES.put(one.get("name").asText(), one));
    } catch (IOException error) {
      throw new ExceptionInInitializerError(error);
    }
  }

  private Declared() {}

  static boolean hasProcedure(String name) {
    return PROCEDURES.containsKey(name.toLowerCase(Locale.ROOT));
  }

  static JsonNode procedure(String name) {
    return PROCEDURES.get(name.toLowerCase(Locale.ROOT));
  }

  static Identifier[] procedures() {
    return PROCEDURES.keySet().stream().map(Declared::identifier).toArray(Identifier[]::new);
  }

  static JsonNode table(String name) {
    return TABLES.get(name.toLowerCase(Locale.ROOT));
  }

  static Identifier[] tables() {
    return TABLES.keySet().stream().map(Declared::identifier).toArray(Identifier[]::new);
  }

  static Identifier identifier(String name) {
    return Identifier.of(new String[] {NAMESPACE}, name.toLowerCase(Locale.ROOT));
  }

  /** Return the columns of a procedure's result or of a table. */
  static StructType columns(JsonNode declared) {
    StructType columns = new StructType();
    for (JsonNode one : declared.get("columns")) {
      DataType type = DataType.fromDDL(one.get("type").asText());
      columns = columns.add(one.get("name").asText(), type, true, one.get("comment").asText());
    }
    return columns;
  }
}
