package mergeberg.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.SparkSession;

/** Where a question leaves the JVM: to the Python driver that registered itself, else to a child process. */
public final class PyBridge {
  private static volatile PyAnswer driver;

  private PyBridge() {}

  /** Let a Python driver answer from now on; null when it ends. */
  public static void register(PyAnswer answering) {
    driver = answering;
  }

  /** Return the rows of the answer, or throw what Python refused. */
  static JsonNode ask(ObjectNode request, SparkSession session) {
    PyAnswer answering = driver;
    JsonNode answer;
    request.put("user", Asker.of(session));
    try {
      String text = Declared.JSON.writeValueAsString(request);
      String answered = answering == null ? PyChild.ask(text, session) : answering.answer(text, session);
      answer = Declared.JSON.readTree(answered);
    } catch (JsonProcessingException error) {
      throw CallFailed.bug("no JSON, " + error.getOriginalMessage());
    }
    if (answer.has("error")) {
      throw CallFailed.of(answer.get("error"));
    }
    return answer.get("rows");
  }
}
