package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Converts the rows of a response to Spark's; a value that does not fit its column is reported as a bug. */
final class Rows implements LocalScan {
  private final StructType columns;
  private final InternalRow[] rows;

  Rows(StructType columns, JsonNode json) {
    this.columns = columns;
    this.rows = new InternalRow[json.size()];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = row(json.get(i));
    }
  }

  private InternalRow row(JsonNode json) {
    StructField[] fields = columns.fields();
    if (json.size() != fields.length) {
      throw CallFailed.bug("a row of the result has " + json.size() + " values, not " + fields.length);
    }
    Object[] values = new Object[fields.length];
    for (int i = 0; i < fields.length; i++) {
      values[i] = Values.fromJson(json.get(i), fields[i].dataType(), fields[i].name());
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
