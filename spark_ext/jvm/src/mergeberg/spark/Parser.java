package mergeberg.spark;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedProcedure;
import org.apache.spark.sql.catalyst.analysis.UnresolvedProcedure;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.Call;
import org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SingleStatement;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Passes every text to the session's previous parser, and changes its result in two cases.
 *
 * <ul>
 *   <li>{@code CALL [catalog.]system.NAME(...)} is bound to mergeberg's procedure of that name, in a catalog of any
 *       class, unless the catalog itself has such a procedure.
 *   <li>A text that the previous parser refuses and that begins like a ClickHouse statement ({@link Shapes}) becomes a
 *       call of {@code execute_alter} with the text. Other errors are passed on.
 * </ul>
 */
class Parser implements ParserInterface {
  private static final String EXECUTE_ALTER = "execute_alter";

  // Iceberg finds its own parser by following fields, so this must be a field and no closure.
  final ParserInterface delegate;
  private final SparkSession session;

  Parser(SparkSession session, ParserInterface delegate) {
    this.session = session;
    this.delegate = delegate;
  }

  /** Parses a text with the delegate. */
  interface Parse {
    LogicalPlan plan() throws ParseException;
  }

  final LogicalPlan parse(String text, Parse delegated) throws ParseException {
    LogicalPlan plan;
    try {
      plan = delegated.plan();
    } catch (Exception refused) { // Spark's ParseException, or Iceberg's AnalysisException.
      String substituted = new VariableSubstitution().substitute(text);
      if (!Shapes.isClickHouse(substituted)) {
        throw refused;
      }
      return statement(substituted);
    }
    return bound(plan);
  }

  private LogicalPlan statement(String text) {
    Expression literal = new Literal(UTF8String.fromString(text), DataTypes.StringType);
    Seq<Expression> arguments = List$.MODULE$.from(CollectionConverters.asScala(List.of(literal)));
    return new Call(procedure(null, EXECUTE_ALTER), arguments, true);
  }

  private LogicalPlan bound(LogicalPlan plan) {
    if (plan instanceof Call) {
      Call call = (Call) plan;
      LogicalPlan ours = ours(call.procedure());
      return ours == null ? plan : new Call(ours, call.args(), call.execute());
    }
    if (plan instanceof ExplainCommand) {
      ExplainCommand explain = (ExplainCommand) plan;
      LogicalPlan inner = bound(explain.logicalPlan());
      return inner == explain.logicalPlan() ? plan : new ExplainCommand(inner, explain.mode());
    }
    return plan instanceof CompoundPlanStatement ? (LogicalPlan) plan.transformDown(new Statements()) : plan;
  }

  /** Binds the statements between BEGIN and END, whose plans a traversal of the outer plan does not visit. */
  private final class Statements extends AbstractPartialFunction<LogicalPlan, LogicalPlan> {
    @Override
    public boolean isDefinedAt(LogicalPlan plan) {
      return plan instanceof SingleStatement;
    }

    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      LogicalPlan held = ((SingleStatement) plan).parsedPlan();
      LogicalPlan bound = bound(held);
      return bound == held ? plan : new SingleStatement(bound);
    }
  }

  private LogicalPlan ours(LogicalPlan named) {
    if (!(named instanceof UnresolvedProcedure)) {
      return null;
    }
    List<String> parts = CollectionConverters.asJava(((UnresolvedProcedure) named).nameParts());
    int size = parts.size();
    if (size < 2 || size > 3 || !parts.get(size - 2).equalsIgnoreCase(Declared.NAMESPACE)) {
      return null;
    }
    String catalog = size == 3 ? parts.get(0) : null;
    String name = parts.get(size - 1);
    return Declared.hasProcedure(name) && !isTheirs(catalog, name) ? procedure(catalog, name) : null;
  }

  /** Whether the catalog itself has a procedure of this name; false if the catalog fails. */
  private boolean isTheirs(String catalog, String name) {
    try {
      var catalogs = session.sessionState().catalogManager();
      CatalogPlugin found = catalog == null ? catalogs.currentCatalog() : catalogs.catalog(catalog);
      return found instanceof ProcedureCatalog
          && ((ProcedureCatalog) found).loadProcedure(Declared.identifier(name)) != null;
    } catch (Exception none) {
      return false;
    }
  }

  private static ResolvedProcedure procedure(String catalog, String name) {
    Catalog ours = new Catalog(catalog);
    Identifier identifier = Declared.identifier(name);
    return new ResolvedProcedure(ours, identifier, ours.loadProcedure(identifier));
  }

  @Override
  public LogicalPlan parsePlan(String text) throws ParseException {
    return parse(text, () -> delegate.parsePlan(text));
  }

  /**
   * The parser for Spark 4.1, which passes query parameters to the delegate: the innermost parser substitutes them.
   *
   * <p>It is a separate class, because a signature with ParameterContext breaks reflection on the class in Spark 4.0.
   */
  static final class From41 extends Parser {
    From41(SparkSession session, ParserInterface delegate) {
      super(session, delegate);
    }

    // No @Override: Spark 4.0 has no such method.
    public LogicalPlan parsePlanWithParameters(String text, ParameterContext parameters) throws ParseException {
      return parse(text, () -> delegate.parsePlanWithParameters(text, parameters));
    }
  }

  @Override
  public LogicalPlan parseQuery(String text) throws ParseException {
    return delegate.parseQuery(text);
  }

  @Override
  public Expression parseExpression(String text) throws ParseException {
    return delegate.parseExpression(text);
  }

  @Override
  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return delegate.parseTableIdentifier(text);
  }

  @Override
  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return delegate.parseFunctionIdentifier(text);
  }

  @Override
  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return delegate.parseMultipartIdentifier(text);
  }

  @Override
  public StructType parseRoutineParam(String text) throws ParseException {
    return delegate.parseRoutineParam(text);
  }

  @Override
  public StructType parseTableSchema(String text) throws ParseException {
    return delegate.parseTableSchema(text);
  }

  @Override
  public DataType parseDataType(String text) throws ParseException {
    return delegate.parseDataType(text);
  }
}
