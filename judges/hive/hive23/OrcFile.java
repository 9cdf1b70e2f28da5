package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.File;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.orc.StripeInformation;
import org.apache.orc.impl.AcidStats;
import org.apache.orc.impl.OrcAcidUtils;

/** Contents of a file, by the Java ORC reader: rows, stripes, user metadata, ACID statistics and, on request, events. */
final class OrcFile {
  private OrcFile() {}

  static JsonObject describe(JsonObject request) throws Exception {
    Path path = new Path(new File(request.get("path").getAsString()).toURI());
    Configuration conf = new Configuration();
    JsonObject answer = new JsonObject();
    try (org.apache.orc.Reader reader =
        org.apache.orc.OrcFile.createReader(path, org.apache.orc.OrcFile.readerOptions(conf))) {
      answer.addProperty("rows", reader.getNumberOfRows());
      answer.addProperty("schema", reader.getSchema().toString());
      answer.addProperty("compression", reader.getCompressionKind().toString());
      answer.add("stripe_rows", stripeRows(reader));
      answer.add("metadata", metadata(reader));
      answer.add("acid_stats", acidStats(reader));
    }
    if (request.get("events").getAsBoolean()) {
      answer.add("events", events(path, conf));
    }
    return answer;
  }

  private static JsonArray stripeRows(org.apache.orc.Reader reader) {
    JsonArray rows = new JsonArray();
    for (StripeInformation stripe : reader.getStripes()) {
      rows.add(stripe.getNumberOfRows());
    }
    return rows;
  }

  private static JsonObject metadata(org.apache.orc.Reader reader) {
    JsonObject metadata = new JsonObject();
    for (String key : reader.getMetadataKeys()) {
      JsonElement text = new JsonPrimitive(StandardCharsets.UTF_8.decode(reader.getMetadataValue(key)).toString());
      metadata.add(key, text);
    }
    return metadata;
  }

  private static JsonElement acidStats(org.apache.orc.Reader reader) {
    AcidStats stats = OrcAcidUtils.parseAcidStats(reader);
    return stats == null ? JsonNull.INSTANCE : Judge.array(stats.inserts, stats.updates, stats.deletes);
  }

  private static JsonArray events(Path path, Configuration conf) throws Exception {
    org.apache.hadoop.hive.ql.io.orc.Reader reader = org.apache.hadoop.hive.ql.io.orc.OrcFile.createReader(
        path, org.apache.hadoop.hive.ql.io.orc.OrcFile.readerOptions(conf));
    ObjectInspector inspector = reader.getObjectInspector();
    JsonArray events = new JsonArray();
    org.apache.hadoop.hive.ql.io.orc.RecordReader rows = reader.rows();
    try {
      Object event = null;
      while (rows.hasNext()) {
        event = rows.next(event);
        events.add(ReaderValues.json(event, inspector));
      }
    } finally {
      rows.close();
    }
    return events;
  }
}
