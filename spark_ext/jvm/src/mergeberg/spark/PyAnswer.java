package mergeberg.spark;

/** Handles requests, implemented in Python: takes a JSON text and the session, and returns a JSON text. */
public interface PyAnswer {
  String answer(String request, Object session);
}
