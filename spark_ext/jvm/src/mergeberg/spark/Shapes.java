package mergeberg.spark;

import java.util.Locale;
import java.util.Set;

/**
 * Recognizes texts that begin like one of the ClickHouse statements that Python parses.
 *
 * <p>It is used only for texts that Spark and Iceberg refuse. It reads forwards and stops at the first word that
 * decides, so that it takes at most linear time. Python parses the statement.
 */
public final class Shapes {
  /** Verbs after a table's name that neither Spark nor Iceberg has. */
  private static final Set<String> OURS_ALONE =
      Set.of(
          "EXPORT", "DETACH", "ATTACH", "MOVE", "FORGET", "FREEZE", "UNFREEZE", "FETCH", "CLEAR", "UPDATE", "DELETE");

  private static final Set<String> VALUES = Set.of("NULL", "TRUE", "FALSE");

  private final String text;
  private int at;

  private Shapes(String text) {
    this.text = text;
  }

  /** Whether a text that Spark refuses is a ClickHouse statement for Python. */
  public static boolean isClickHouse(String text) {
    return new Shapes(text).statement();
  }

  private boolean statement() {
    switch (next()) {
      case "ALTER":
        String word = next();
        return (word.equals("TEMPORARY") ? next() : word).equals("TABLE") && table() && command();
      case "OPTIMIZE":
        return next().equals("TABLE");
      case "KILL":
        return next().equals("QUERY");
      case "DELETE":
        return next().equals("FROM") && table() && next().equals("IN") && next().equals("PARTITION");
      case "UPDATE":
        return table() && next().equals("SET") && inPartition();
      default:
        return false;
    }
  }

  /** Read a table's name and an optional {@code ON CLUSTER name}; return false if either is incomplete. */
  private boolean table() {
    if (!name()) {
      return false;
    }
    if (!peek().equals("ON")) {
      return true;
    }
    next();
    return next().equals("CLUSTER") && !next().isEmpty();
  }

  private boolean command() {
    String verb = next();
    // In ClickHouse, each command of a list may be in brackets.
    if (verb.equals("(")) {
      verb = next();
    }
    if (OURS_ALONE.contains(verb)) {
      return true;
    }
    boolean isDrop = verb.equals("DROP");
    if (!isDrop && !verb.equals("REPLACE")) {
      return false;
    }
    switch (next()) {
      case "PART":
      case "DETACHED":
        return true;
      case "PARTITION":
        // Iceberg's: DROP PARTITION FIELD ...
        String after = next();
        return !after.equals("FIELD") && !(isDrop && after.equals("(") && isSparkPartition());
      default:
        return false;
    }
  }

  /** Whether IN PARTITION occurs in the rest, outside of brackets. */
  private boolean inPartition() {
    int depth = 0;
    for (String word = next(); !word.isEmpty(); word = next()) {
      if (word.equals("(") || word.equals("[")) {
        depth++;
      } else if (word.equals(")") || word.equals("]")) {
        depth--;
      } else if (depth == 0 && word.equals("IN") && peek().equals("PARTITION")) {
        return true;
      }
    }
    return false;
  }

  /** Whether a column comes next, as in Spark's own PARTITION (column = value); ClickHouse has values there. */
  private boolean isSparkPartition() {
    String word = peek();
    boolean isValue = VALUES.contains(word) || (!word.isEmpty() && Character.isDigit(word.charAt(0)));
    return !isValue && name() && (peek().equals("=") || peek().equals(")"));
  }

  /** Read one name, or several with dots between them. */
  private boolean name() {
    while (true) {
      String word = next();
      if (word.equals("{")) {
        // A query parameter, which Python refuses with an error that names it.
        while (!word.equals("}")) {
          word = next();
          if (word.isEmpty()) {
            return false;
          }
        }
      } else if (!word.equals("`") && (word.isEmpty() || !isWordPart(word.charAt(0)))) {
        return false;
      }
      if (!peek().equals(".")) {
        return true;
      }
      next();
    }
  }

  private String peek() {
    int here = at;
    String word = next();
    at = here;
    return word;
  }

  /**
   * Read the next token: a word in upper case, a single character, {@code `} for a quoted name, {@code '} for a
   * string, or the empty text at the end.
   */
  private String next() {
    skipBlank();
    if (at >= text.length()) {
      return "";
    }
    int start = at;
    char first = text.charAt(at);
    if (first == '`' || first == '"' || first == '\'') {
      return quoted(first) ? (first == '\'' ? "'" : "`") : "";
    }
    if (!isWordPart(first)) {
      at++;
      return String.valueOf(first);
    }
    while (at < text.length() && isWordPart(text.charAt(at))) {
      at++;
    }
    return text.substring(start, at).toUpperCase(Locale.ROOT);
  }

  private boolean quoted(char quote) {
    for (at++; at < text.length(); at++) {
      char sign = text.charAt(at);
      if (sign == '\\') {
        at++;
      } else if (sign == quote) {
        at++;
        if (at >= text.length() || text.charAt(at) != quote) {
          return true;
        }
      }
    }
    return false;
  }

  private void skipBlank() {
    while (at < text.length()) {
      if (text.startsWith("--", at) || text.charAt(at) == '#') {
        int end = text.indexOf('\n', at);
        at = end < 0 ? text.length() : end + 1;
      } else if (text.startsWith("/*", at)) {
        skipComment();
      } else if (Character.isWhitespace(text.charAt(at)) || text.charAt(at) == '\u00a0') {
        at++;
      } else {
        return;
      }
    }
  }

  /** Skip a comment with nested comments, as Spark and ClickHouse do. */
  private void skipComment() {
    int depth = 0;
    do {
      if (text.startsWith("/*", at)) {
        depth++;
        at += 2;
      } else if (text.startsWith("*/", at)) {
        depth--;
        at += 2;
      } else {
        at++;
      }
    } while (depth > 0 && at < text.length());
  }

  private static boolean isWordPart(char sign) {
    return Character.isLetterOrDigit(sign) || sign == '_' || sign == '$';
  }
}
