package mergeberg.spark;

import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;

/** Checks the versions of Spark and Iceberg, and refuses unsupported pairs when a session starts. */
public final class Versions {
  private static final String[][] PAIRS = {{"4.1.", "1.12."}, {"4.0.", "1.11."}};
  private static final String BEST =
      "pyspark 4.1.4 with org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0";

  private Versions() {}

  /** Refuse an unsupported Spark, or an Iceberg that does not fit it; a session may have no Iceberg. */
  static void check() {
    String spark = org.apache.spark.package$.MODULE$.SPARK_VERSION();
    String iceberg = iceberg();
    String refusal = refusal(spark, iceberg);
    if (refusal != null) {
      throw new IllegalStateException(refusal);
    }
  }

  /** Return the error for an unsupported pair, or null; {@code iceberg} is null without Iceberg. */
  public static String refusal(String spark, String iceberg) {
    boolean known = false;
    for (String[] pair : PAIRS) {
      if (spark.startsWith(pair[0])) {
        known = true;
        if (iceberg == null || iceberg.startsWith(pair[1])) {
          return null;
        }
      }
    }
    String found = "Spark " + spark + (iceberg == null ? "" : " with Iceberg " + iceberg);
    String why = known ? "this Iceberg does not fit this Spark" : "this Spark is not supported";
    return "Cannot start mergeberg on " + found + ": " + why + ". Install " + BEST + ".";
  }

  static boolean hasParameterContext() {
    try {
      Class.forName("org.apache.spark.sql.catalyst.parser.ParameterContext");
      return true;
    } catch (ClassNotFoundException spark40) {
      return false;
    }
  }

  private static String iceberg() {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    try (InputStream file = loader.getResourceAsStream("iceberg-build.properties")) {
      if (file == null) {
        return null;
      }
      Properties build = new Properties();
      build.load(file);
      return build.getProperty("git.build.version");
    } catch (IOException error) {
      throw new IllegalStateException("Cannot read the version of Iceberg: " + error, error);
    }
  }
}
