package mergeberg.spark;

import java.lang.reflect.Field;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.CurrentUserContext;

/**
 * Finds the user of the running statement: that of the Connect session, of the Thrift session, or of the process.
 *
 * <p>Spark keeps the Thrift user on the thread, and the Connect user with the session. Both servers may be missing
 * from the class path.
 */
final class StatementUser {
  private static final String CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService";
  private static final String THRIFT = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2";

  private StatementUser() {}

  /** Return the user's name, or null if a server runs and the user is unknown. */
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
      // Another release of Spark may keep the user elsewhere, and a guess could grant the rights of another user.
      return null;
    }
  }

  private static boolean runs(String server, String set) throws ReflectiveOperationException {
    try {
      return get(module(server), set) != null;
    } catch (ClassNotFoundException missing) {
      return false;
    }
  }

  private static String connected(SparkSession session) throws ReflectiveOperationException {
    Object sessions = get(module(CONNECT), "sessionManager");
    // The public methods that list or find sessions would count as use, and keep idle sessions from expiring.
    Field store = sessions.getClass().getDeclaredField("sessionStore");
    store.setAccessible(true);
    for (Object held : ((Map<?, ?>) store.get(sessions)).values()) {
      if (get(held, "session") == session) {
        return (String) get(held, "userId");
      }
    }
    return null;
  }

  private static Object module(String name) throws ReflectiveOperationException {
    return Class.forName(name + "$", true, SparkSession.class.getClassLoader()).getField("MODULE$").get(null);
  }

  private static Object get(Object of, String name) throws ReflectiveOperationException {
    return of.getClass().getMethod(name).invoke(of);
  }
}
