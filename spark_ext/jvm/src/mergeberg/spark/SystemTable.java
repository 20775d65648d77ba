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
 * A declared system table. Python returns all of its rows at each query, so that they are current; Spark filters and
 * joins them.
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
    return CurrentRows::new;
  }

  /** A scan that sends the request when its rows are read, and not when a plan is only explained. */
  private final class CurrentRows implements LocalScan {
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
      return new Rows(columns, PyBridge.send(request, session)).rows();
    }
  }
}
