package mergeberg.spark;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map;

/**
 * An error of the Python side, as a SQL error that every client shows in one line with its SQLSTATE.
 *
 * <p>The error condition is one of Spark's own, because a Connect client shows messages of known conditions only. The
 * SQLSTATE is that of the error. The message of a bug includes the Python traceback, because most clients show no
 * causes.
 */
final class CallFailed extends AnalysisException {
  private static final String CONDITION = "USER_RAISED_EXCEPTION";
  private static final String BUG = "XX000";
  private static final long serialVersionUID = 1;

  private final String state;

  private CallFailed(String message, String shown, String state) {
    super(
        shown,
        Option.empty(),
        Option.empty(),
        Option.empty(),
        Option.apply(CONDITION),
        new Map.Map1<>("errorMessage", message),
        new QueryContext[0]);
    this.state = state;
  }

  @Override
  public String getSqlState() {
    return state;
  }

  /** Return the error as unchecked; {@code AnalysisException} is checked, and Scala methods do not declare it. */
  static RuntimeException of(JsonNode error) {
    String message = error.get("message").asText();
    String state = error.get("sqlstate").asText();
    String shown = message + " SQLSTATE: " + state;
    JsonNode traceback = error.get("traceback");
    if (traceback != null) {
      message += "\n" + traceback.asText();
      shown += "\n" + traceback.asText();
    }
    return unchecked(new CallFailed(message, shown, state));
  }

  static RuntimeException refused(String message, String state) {
    return unchecked(new CallFailed(message, message + " SQLSTATE: " + state, state));
  }

  static RuntimeException bug(String what) {
    String message = "Cannot use the data that Python and Java exchange: " + what + ". This is a bug, please report it.";
    return refused(message, BUG);
  }

  /** Throw a checked exception from a method that declares none. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException unchecked(Throwable error) throws E {
    throw (E) error;
  }
}
