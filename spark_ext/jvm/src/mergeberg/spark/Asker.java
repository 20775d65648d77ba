package mergeberg.spark;

import java.lang.reflect.Field;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.CurrentUserContext;

/**
 * Who gave the statement that runs: the user of the Connect session, that of the Thrift session, else of the process.
 *
 * <p>Spark keeps Thrift's user on the thread, and Connect's with the session: its threads know none. Both servers may
 * be missing from the class path.
 */
final class Asker {
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService";
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2";

  private Asker() {}

  /** Return the user's name, or null where a server runs and it cannot be told whose statement it is. */
  static String of(SparkSession session) {
    try {
      boolean connects = runs(CONNECT, "server");
      String connected = connects ? connected(session) : null;
      String onThread = CurrentUserContext.CURRENT_USER().get();
      if (connected != null || onThread != null) {
        return connected != null ? connected : onThread;
      }
      return connects || runs(THRIFT, "eventManager") ? null : CurrentUserContext.getCurrentUser();
    } catch (ReflectiveOperationException | RuntimeException | LinkageError another) {
      // Another release of Spark, of which this is not known: who the user is must not be guessed.
      return null;
    }
  }

  private static boolean runs(String server, String set) throws ReflectiveOperationException {
    try {
      return ask(module(server), set) != null;
    } catch (ClassNotFoundException missing) {
      return false;
    }
  }

  private static String connected(SparkSession session) throws ReflectiveOperationException {
    Object sessions = ask(module(CONNECT), "sessionManager");
    // What lists or finds sessions in public keeps those of others from ending for want of use.
    Field store = sessions.getClass().getDeclaredField("sessionStore");
    store.setAccessible(true);
    for (Object held : ((Map<?, ?>) store.get(sessions)).values()) {
      if (ask(held, "session") == session) {
        return (String) ask(held, "userId");
      }
    }
    return null;
  }

  private static Object module(String name) throws ReflectiveOperationException {
    return Class.forName(name + "$", true, SparkSession.class.getClassLoader()).getField("MODULE$").get(null);
  }

  private static Object ask(Object of, String name) throws ReflectiveOperationException {
    return of.getClass().getMethod(name).invoke(of);
  }
}
