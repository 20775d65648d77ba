package mergeberg.spark;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.python.Py4JServer;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.SparkSession;

/**
 * Sends a request to a child process, for drivers that are not Python programs: spark-sql, Thrift, Connect.
 *
 * <p>The child is {@code python -m spark_ext.jvm.child}. It attaches to this JVM as the Python process of spark-submit
 * does, fetches the request by a token, works in the caller's session, and returns the response.
 */
public final class PyChild {
  private static final Map<String, PyChild> WAITING = new ConcurrentHashMap<>();
  private static final String MODULE = "spark_ext.jvm.child";
  private static final String PYTHON = "spark.mergeberg.python";
  private static final long SECONDS_TO_END = 10;
  private static final long POLL_MILLISECONDS = 20;

  private final String request;
  private final SparkSession session;
  private final Properties callers;
  private volatile String response;
  private volatile boolean keepsRunning;
  private volatile String lastLine = "";

  private PyChild(String request, SparkSession session) {
    this.request = request;
    this.session = session;
    this.callers = (Properties) session.sparkContext().getLocalProperties().clone();
  }

  /** Called first by the child, on the thread that serves it; gives its jobs the caller's group, tags and pool. */
  public static PyChild attach(String token) {
    PyChild waiting = WAITING.remove(token);
    waiting.session.sparkContext().setLocalProperties(waiting.callers);
    SparkSession.setActiveSession(waiting.session);
    return waiting;
  }

  public String request() {
    return request;
  }

  public SparkSession session() {
    return session;
  }

  /** Called by the child with its response; a child that keeps running, for exports in the background, is not ended. */
  public void finish(String response, boolean keepsRunning) {
    this.response = response;
    this.keepsRunning = keepsRunning;
  }

  static String send(String request, SparkSession session) {
    PyChild waiting = new PyChild(request, session);
    String token = UUID.randomUUID().toString();
    SparkConf conf = session.sparkContext().conf();
    Py4JServer server = new Py4JServer(conf);
    server.start();
    WAITING.put(token, waiting);
    Process child = null;
    try {
      child = start(conf, server, token);
      int code = waiting.outlast(child);
      if (waiting.response == null) {
        throw failed("ask Python: " + python(conf) + " -m " + MODULE + " ended with exit code " + code
            + ", its last words: " + waiting.lastLine);
      }
      return waiting.response;
    } catch (IOException error) {
      throw failed("start Python: " + error.getMessage());
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      throw CallFailed.refused("Cannot finish: the statement was cancelled. Finished work is kept; run the same "
          + "statement again to continue.", "57014");
    } finally {
      WAITING.remove(token);
      if (child == null) {
        server.shutdown();
      } else {
        // The child needs this JVM until it has ended: for its exports, or to cancel its Spark jobs.
        child.onExit().thenRun(server::shutdown);
        if (!waiting.keepsRunning) {
          end(child);
        }
      }
    }
  }

  private static RuntimeException failed(String what) {
    String mend = ". Set " + PYTHON + " to the Python in which mergeberg is installed.";
    return CallFailed.refused("Cannot " + what + mend, "58000");
  }

  private static Process start(SparkConf conf, Py4JServer server, String token) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(python(conf), "-P", "-m", MODULE).redirectErrorStream(true);
    Map<String, String> environment = builder.environment();
    String path = Stream.of(environment.getOrDefault("PYTHONPATH", ""), PythonUtils.sparkPythonPath())
        .filter(part -> !part.isEmpty())
        .collect(Collectors.joining(File.pathSeparator));
    environment.put("PYTHONPATH", path);
    environment.put("PYSPARK_GATEWAY_PORT", String.valueOf(server.getListeningPort()));
    environment.put("PYSPARK_GATEWAY_SECRET", server.secret());
    environment.put("MERGEBERG_CALL", token);
    // The Python of the workers; as in PySpark, Spark's setting takes precedence over the environment.
    environment.putIfAbsent("PYSPARK_PYTHON", python(conf));
    environment.computeIfPresent("PYSPARK_PYTHON", (name, python) -> conf.get("spark.pyspark.python", python));
    return builder.start();
  }

  /** Wait for the child, and copy its output to standard error: spark-sql prints results on standard output. */
  private int outlast(Process child) throws InterruptedException {
    Thread pump = new Thread(() -> copyOutput(child), "mergeberg-child-output");
    pump.setDaemon(true);
    pump.start();
    while (!keepsRunning && !child.waitFor(POLL_MILLISECONDS, TimeUnit.MILLISECONDS)) {
      // Polls, because the wait must be interruptible and end when the child keeps running.
    }
    // The error message needs the last line; a grandchild may keep the pipe open for longer than a second.
    if (response == null) {
      pump.join(TimeUnit.SECONDS.toMillis(1));
    }
    return keepsRunning ? 0 : child.exitValue();
  }

  private void copyOutput(Process child) {
    InputStreamReader output = new InputStreamReader(child.getInputStream(), StandardCharsets.UTF_8);
    try (BufferedReader lines = new BufferedReader(output)) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        System.err.println(line);
        lastLine = line.isBlank() ? lastLine : line.strip();
      }
    } catch (IOException closed) {
      System.err.println("mergeberg: the output of a child ended, " + closed.getMessage());
    }
  }

  /** End the child: send it SIGTERM, and kill it if it has not ended after {@code SECONDS_TO_END}. */
  private static void end(Process child) {
    if (!child.isAlive()) {
      return;
    }
    child.destroy();
    child.onExit().completeOnTimeout(null, SECONDS_TO_END, TimeUnit.SECONDS).thenAccept(ended -> {
      if (ended == null) {
        child.destroyForcibly();
      }
    });
  }

  private static String python(SparkConf conf) {
    return Stream.of(
            conf.get(PYTHON, ""),
            conf.get("spark.pyspark.driver.python", ""),
            conf.get("spark.pyspark.python", ""),
            System.getenv().getOrDefault("PYSPARK_DRIVER_PYTHON", ""),
            System.getenv().getOrDefault("PYSPARK_PYTHON", ""))
        .filter(name -> !name.isEmpty())
        .findFirst()
        .orElse("python3");
  }
}
