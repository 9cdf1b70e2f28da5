package judge;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.security.SecurityUtil;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.VersionInfo;
import org.apache.hive.common.util.HiveVersionInfo;

/**
 * Real Hive as a judge: metastore, SQL, compactor, directory state and bucket hash of the Hive on the class path.
 *
 * <p>Usage: {@code Judge WORK_DIRECTORY [key=value ...]}. Every line on standard input is a request, a JSON object whose
 * member {@code do} names the action. Every request gets one line of JSON on standard output: the result, or
 * {@code error}, {@code message} and {@code trace}. Log lines go to standard error. The process ends when its standard
 * input does, also in the middle of a request, so it cannot outlive the program that started it. Differences between
 * Hive's releases are in {@code Line}; each release has its own.
 */
public final class Judge {
  private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

  interface Action {
    JsonObject apply(JsonObject request) throws Exception;
  }

  private final Map<String, Action> actions = new LinkedHashMap<>();
  private final HiveConf conf;
  private Session session;

  private Judge(HiveConf conf) {
    this.conf = conf;
    actions.put("versions", request -> versions());
    actions.put("state", request -> DirectoryState.of(request));
    actions.put("hash", request -> BucketHash.of(request));
    actions.put("serve", request -> session().serve());
    actions.put("sql", request -> session().sql(request));
    actions.put("table_rows", request -> new TableRows(session(), conf, request).read());
    actions.put("worker", request -> session().compactor().worker());
    actions.put("initiator", request -> session().compactor().initiator());
    actions.put("cleaner", request -> session().compactor().cleaner());
    actions.put("compactions", request -> session().compactor().compactions());
    actions.put("time_out", request -> session().timeOut(request));
    actions.put("metastore_rows", request -> session().metastoreRows(request));
    Line.addActions(actions);
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    System.setOut(System.err); // Hive's own output must not mix with the answers
    BlockingQueue<String> requests = readRequests();
    HiveConf conf = Settings.make(new File(arguments[0]).getCanonicalFile(), arguments);
    logIn(conf);
    Judge judge = new Judge(conf);
    while (true) {
      answers.println(GSON.toJson(judge.answer(requests.take())));
      answers.flush();
    }
  }

  /** Log in by Kerberos, if the storage requires it: as the metastore's own principal. */
  private static void logIn(HiveConf conf) throws IOException {
    if (SecurityUtil.getAuthenticationMethod(conf) == UserGroupInformation.AuthenticationMethod.KERBEROS) {
      UserGroupInformation.setConfiguration(conf);
      UserGroupInformation.loginUserFromKeytab(
          conf.get("hive.metastore.kerberos.principal"), conf.get("hive.metastore.kerberos.keytab.file"));
    }
  }

  /** Queue the lines of standard input. A separate thread notices its end also while a request is running. */
  private static BlockingQueue<String> readRequests() {
    BlockingQueue<String> requests = new LinkedBlockingQueue<>();
    Thread reader = new Thread(() -> {
      try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
          requests.add(line);
        }
      } catch (IOException e) {
        e.printStackTrace();
      }
      Runtime.getRuntime().halt(0);
    }, "requests");
    reader.setDaemon(true);
    reader.start();
    return requests;
  }

  private JsonObject answer(String line) {
    try {
      JsonObject request = JsonParser.parseString(line).getAsJsonObject();
      Action action = actions.get(request.get("do").getAsString());
      if (action == null) {
        throw new IllegalArgumentException("unknown request " + request.get("do") + "; known: " + actions.keySet());
      }
      return action.apply(request);
    } catch (Throwable t) { // an Error of Hive's, such as a missing class, is a finding too
      return error(t);
    }
  }

  private static JsonObject error(Throwable t) {
    StringWriter trace = new StringWriter();
    t.printStackTrace(new PrintWriter(trace));
    JsonObject answer = new JsonObject();
    answer.addProperty("error", t.getClass().getName());
    answer.addProperty("message", String.valueOf(t.getMessage()));
    answer.addProperty("trace", trace.toString());
    return answer;
  }

  /** The metastore and the SQL session take seconds to start, so they start on first use; the hash does not need them. */
  private Session session() throws Exception {
    if (session == null) {
      session = new Session(conf);
    }
    return session;
  }

  private static JsonObject versions() {
    JsonObject answer = new JsonObject();
    answer.addProperty("hive", HiveVersionInfo.getVersion());
    answer.addProperty("hadoop", VersionInfo.getVersion());
    answer.addProperty("orc", Line.orcVersion());
    answer.addProperty("java", System.getProperty("java.version"));
    return answer;
  }

  /** Makes an array of numbers. */
  static JsonArray array(long... values) {
    JsonArray array = new JsonArray();
    for (long value : values) {
      array.add(value);
    }
    return array;
  }

  /** Makes an array of texts. */
  static JsonArray array(Iterable<String> values) {
    JsonArray array = new JsonArray();
    values.forEach(array::add);
    return array;
  }
}
