package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One system table as it is declared. Python is asked for all of its rows each time a query is planned, so that they
 * are always current; Spark filters and joins them.
 */
final class SystemTable implements Table, SupportsRead {
  private final JsonNode declared;
  private final StructType columns;

  SystemTable(JsonNode declared) {
    this.declared = declared;
    this.columns = Declared.columns(declared);
  }

  @Override
  public String name() {
    return Catalog.OWN + "." + Declared.NAMESPACE + "." + declared.get("name").asText();
  }

  @Override
  public StructType schema() {
    return columns;
  }

  @Override
  public Map<String, String> properties() {
    return Map.of("comment", declared.get("description").asText());
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return Asked::new;
  }

  /** A scan that asks when its rows are wanted, and not when a plan is merely drawn. */
  private final class Asked implements LocalScan {
    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public String description() {
      return name();
    }

    @Override
    public InternalRow[] rows() {
      SparkSession session = SparkSession.active();
      ObjectNode request = Declared.JSON.createObjectNode();
      request.put("table", declared.get("name").asText());
      request.put("catalog", session.catalog().currentCatalog());
      return new Rows(columns, PyBridge.ask(request, session)).rows();
    }
  }
}
