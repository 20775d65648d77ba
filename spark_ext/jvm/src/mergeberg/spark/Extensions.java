package mergeberg.spark;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.BoxedUnit;

/**
 * What a session names in {@code spark.sql.extensions}: puts our parser around the ones that are there.
 *
 * <p>Loaded in whatever Spark there is, so this class touches only what every Spark 4 has.
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
   * Put our parser into a session that is there already, a notebook's: Spark takes extensions only at the start.
   *
   * @return whether it was not there before
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

  /** Whether ours is in the chain of parsers; each keeps the next one in a field, as Iceberg's does. */
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
