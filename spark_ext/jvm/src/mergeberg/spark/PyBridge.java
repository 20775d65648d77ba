package mergeberg.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.SparkSession;

/** Sends requests to Python: to the driver if it has registered itself, or else to a child process. */
public final class PyBridge {
  private static volatile PyAnswer driver;

  private PyBridge() {}

  /** Send requests to a Python driver from now on; null for child processes. */
  public static void register(PyAnswer handler) {
    driver = handler;
  }

  /** Send a request, and return the rows of its response; throw its error as a SQL error. */
  static JsonNode send(ObjectNode request, SparkSession session) {
    PyAnswer handler = driver;
    JsonNode response;
    request.put("user", StatementUser.of(session));
    try {
      String text = Declared.JSON.writeValueAsString(request);
      String json = handler == null ? PyChild.send(text, session) : handler.answer(text, session);
      response = Declared.JSON.readTree(json);
    } catch (JsonProcessingException error) {
      throw CallFailed.bug("no JSON, " + error.getOriginalMessage());
    }
    if (response.has("error")) {
      throw CallFailed.of(response.get("error"));
    }
    return response.get("rows");
  }
}
