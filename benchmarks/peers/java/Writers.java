package writers;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import org.apache.hive.common.util.HiveVersionInfo;

/**
 * Writes the same rows with Hive's bare RecordUpdater or through its Mutation API, as often as it is asked to.
 *
 * <p>Every line on standard input is a request, a JSON object whose member {@code do} names what to do; every request
 * gets one line of JSON on standard output. {@code load} takes rows into memory; {@code updater} and {@code api} write
 * them once. The process ends when its standard input does.
 */
public final class Writers {
  private static Rows rows;

  private Writers() {}

  public static void main(String[] arguments) throws Exception {
    PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    System.setOut(System.err); // whatever Hive prints must not mix with the answers
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = requests.readLine(); line != null; line = requests.readLine()) {
      answers.println(new Gson().toJson(answer(JsonParser.parseString(line).getAsJsonObject())));
      answers.flush();
    }
    System.exit(0); // the Mutation API leaves a timer behind
  }

  private static JsonObject answer(JsonObject request) {
    try {
      return act(request);
    } catch (Throwable t) { // an Error of Hive's, such as a missing class, is an answer too
      StringWriter trace = new StringWriter();
      t.printStackTrace(new PrintWriter(trace));
      JsonObject answer = new JsonObject();
      answer.addProperty("error", t.getClass().getName());
      answer.addProperty("message", String.valueOf(t.getMessage()));
      answer.addProperty("trace", trace.toString());
      return answer;
    }
  }

  private static JsonObject act(JsonObject request) throws Exception {
    JsonObject answer = new JsonObject();
    switch (request.get("do").getAsString()) {
      case "load" -> {
        int partitions = request.get("partitions").getAsInt();
        int buckets = request.get("buckets").getAsInt();
        rows = Rows.read(new File(request.get("path").getAsString()), partitions, buckets);
        answer.addProperty("rows", rows.ids.length);
        answer.addProperty("version", "Hive " + HiveVersionInfo.getVersion());
      }
      case "updater" -> {
        String folder = request.get("folder").getAsString();
        answer.addProperty("seconds", BareUpdater.write(rows, folder, request.get("txn").getAsLong()));
      }
      case "api" -> {
        String uri = request.get("uri").getAsString();
        String database = request.get("database").getAsString();
        String table = request.get("table").getAsString();
        answer.addProperty("seconds", MutationApi.write(rows, uri, database, table));
      }
      default -> throw new IllegalArgumentException("unknown request " + request);
    }
    return answer;
  }
}
