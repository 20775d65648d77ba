package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A declared procedure, which Python runs.
 *
 * <p>The bound procedure is another object, because Spark treats a bound procedure as resolved, even before its
 * arguments are.
 */
final class SystemProcedure implements UnboundProcedure {
  private final String catalog;
  private final JsonNode declared;
  private final ProcedureParameter[] parameters;
  private final StructType columns;

  /** Creates a procedure; {@code catalog} is null if the statement names none. */
  SystemProcedure(String catalog, JsonNode declared) {
    this.catalog = catalog;
    this.declared = declared;
    this.columns = Declared.columns(declared);
    JsonNode given = declared.get("parameters");
    this.parameters = new ProcedureParameter[given.size()];
    for (int i = 0; i < parameters.length; i++) {
      parameters[i] = parameter(given.get(i));
    }
  }

  private static ProcedureParameter parameter(JsonNode given) {
    DataType type = DataType.fromDDL(given.get("type").asText());
    ProcedureParameter.Builder made = ProcedureParameter.in(given.get("name").asText(), type);
    made.comment(given.get("comment").asText());
    if (given.hasNonNull("default")) {
      made.defaultValue(given.get("default").asText());
    }
    return made.build();
  }

  @Override
  public String name() {
    return declared.get("name").asText();
  }

  @Override
  public String description() {
    return declared.get("description").asText();
  }

  @Override
  public BoundProcedure bind(StructType input) {
    return new Bound();
  }

  private final class Bound implements BoundProcedure {
    @Override
    public String name() {
      return SystemProcedure.this.name();
    }

    @Override
    public String description() {
      return SystemProcedure.this.description();
    }

    @Override
    public ProcedureParameter[] parameters() {
      return parameters;
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public Iterator<Scan> call(InternalRow arguments) {
      SparkSession session = SparkSession.active();
      ObjectNode request = Declared.JSON.createObjectNode();
      request.put("call", name());
      // Read at the time of the call, because USE may have run after the statement was parsed.
      request.put("catalog", catalog == null ? session.catalog().currentCatalog() : catalog);
      ObjectNode named = request.putObject("arguments");
      for (int i = 0; i < parameters.length; i++) {
        DataType type = parameters[i].dataType();
        Object value = arguments.isNullAt(i) ? null : arguments.get(i, type);
        named.set(parameters[i].name(), Values.toJson(value, type));
      }
      return Collections.<Scan>singleton(new Rows(columns, PyBridge.send(request, session))).iterator();
    }
  }
}
