package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The rows of an answer as Spark has them; a value that does not fit its column is a bug, never another value. */
final class Rows implements LocalScan {
  private final StructType columns;
  private final InternalRow[] rows;

  Rows(StructType columns, JsonNode answered) {
    this.columns = columns;
    this.rows = new InternalRow[answered.size()];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = row(answered.get(i));
    }
  }

  private InternalRow row(JsonNode answered) {
    StructField[] fields = columns.fields();
    if (answered.size() != fields.length) {
      throw CallFailed.bug("a row of the answer has " + answered.size() + " values, not " + fields.length);
    }
    Object[] values = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      values[i] = Values.fromJson(answered.get(i), fields[i].dataType(), fields[i].name());
    }
    return new GenericInternalRow(values);
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public InternalRow[] rows() {
    return rows;
  }
}
