package mergeberg.spark;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * The class for {@code spark.sql.extensions}: wraps the parser of a session in mergeberg's parser.
 *
 * <p>It is loaded in any version of Spark, and therefore uses only classes that every Spark 4 has.
 */
public final class Extensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    Versions.check();
    extensions.injectParser(
        new AbstractFunction2<SparkSession, ParserInterface, ParserInterface>() {
          @Override
          public ParserInterface apply(SparkSession session, ParserInterface delegate) {
            return around(delegate, session);
          }
        });
    return BoxedUnit.UNIT;
  }

  /**
   * Install the parser in a running session, such as that of a notebook; Spark loads extensions only at the start.
   *
   * @return whether the session did not have the parser before
   */
  public static boolean install(SparkSession session) throws ReflectiveOperationException {
    Versions.check();
    Object state = session.getClass().getMethod("sessionState").invoke(session);
    Field field = state.getClass().getDeclaredField("sqlParser");
    field.setAccessible(true);
    ParserInterface now = (ParserInterface) field.get(state);
    if (isOurs(now)) {
      return false;
    }
    field.set(state, around(now, session));
    return true;
  }

  private static ParserInterface around(ParserInterface delegate, SparkSession session) {
    return Versions.hasParameterContext()
        ? new Parser.From41(session, delegate)
        : new Parser(session, delegate);
  }

  /** Whether mergeberg's parser is in the chain of parsers; each parser, like Iceberg's, has the next in a field. */
  private static boolean isOurs(ParserInterface parser) throws ReflectiveOperationException {
    if (parser instanceof Parser) {
      return true;
    }
    for (Field field : parser.getClass().getDeclaredFields()) {
      if (ParserInterface.class.isAssignableFrom(field.getType())) {
        field.setAccessible(true);
        Object next = field.get(parser);
        if (next != null && isOurs((ParserInterface) next)) {
          return true;
        }
      }
    }
    return false;
  }
}
