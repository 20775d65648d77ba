package mergeberg.spark;

/** Implemented in Python: one JSON text in, one out; of the JVM only the session crosses. */
public interface PyAnswer {
  String answer(String request, Object session);
}
