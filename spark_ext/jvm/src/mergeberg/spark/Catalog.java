package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The read-only catalog {@code spark.sql.catalog.mergeberg} of mergeberg's procedures and system tables.
 *
 * <p>A call that {@link Parser} binds has an instance with the name of the user's own catalog.
 */
public final class Catalog implements TableCatalog, SupportsNamespaces, ProcedureCatalog {
  static final String OWN = "mergeberg";

  private String name;

  /** Creates a catalog that Spark initializes. */
  public Catalog() {}

  Catalog(String name) {
    this.name = name;
  }

  @Override
  public void initialize(String given, CaseInsensitiveStringMap options) {
    this.name = given;
  }

  @Override
  public String name() {
    return name == null ? OWN : name;
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier identifier) {
    if (!isSystem(identifier.namespace()) || !Declared.hasProcedure(identifier.name())) {
      throw CallFailed.refused("Cannot find the procedure " + identifier + ": the catalog " + name()
          + " has none of that name. SHOW PROCEDURES IN " + OWN + " lists them.", "42883");
    }
    return new SystemProcedure(name, Declared.procedure(identifier.name()));
  }

  // No @Override: Spark 4.0 has no such method.
  public Identifier[] listProcedures(String[] namespace) {
    return namespace.length == 0 || isSystem(namespace) ? Declared.procedures() : new Identifier[0];
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return isSystem(namespace) ? Declared.tables() : new Identifier[0];
  }

  @Override
  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    JsonNode declared = isSystem(identifier.namespace()) ? Declared.table(identifier.name()) : null;
    if (declared == null) {
      throw new NoSuchTableException(identifier);
    }
    return new SystemTable(declared);
  }

  @Override
  public Table createTable(
      Identifier identifier, StructType schema, Transform[] partitions, Map<String, String> properties) {
    throw unchangeable();
  }

  @Override
  public Table alterTable(Identifier identifier, TableChange... changes) {
    throw unchangeable();
  }

  @Override
  public boolean dropTable(Identifier identifier) {
    throw unchangeable();
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw unchangeable();
  }

  @Override
  public String[][] listNamespaces() {
    return new String[][] {{Declared.NAMESPACE}};
  }

  @Override
  public String[][] listNamespaces(String[] namespace) {
    return namespace.length == 0 ? listNamespaces() : new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!isSystem(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return Map.of();
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    throw unchangeable();
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw unchangeable();
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw unchangeable();
  }

  private static boolean isSystem(String[] namespace) {
    return namespace.length == 1 && namespace[0].equalsIgnoreCase(Declared.NAMESPACE);
  }

  private RuntimeException unchangeable() {
    return CallFailed.refused("Cannot change the catalog " + name() + ": it only shows what mergeberg knows. "
        + "Create tables and namespaces in the lake's own catalog.", "0A000");
  }
}
