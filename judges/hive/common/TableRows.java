package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.common.FileUtils;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.ql.metadata.Hive;
import org.apache.hadoop.hive.ql.metadata.Table;

/**
 * A whole table through SQL, by each of Hive's readers: every row as [partition directory, ROW__ID or null, values].
 *
 * <p>A plain SELECT is a fetch task, which always uses the row reader; only a job uses the vectorised one.
 */
final class TableRows {
  private static final Map<String, String> BY_ROWS =
      Map.of("hive.fetch.task.conversion", "more", "hive.fetch.task.conversion.threshold", "-1", "hive.vectorized.execution.enabled", "false");
  private static final Map<String, String> BY_VECTORS =
      Map.of("hive.fetch.task.conversion", "none", "hive.vectorized.execution.enabled", "true");

  private final Session session;
  private final String query;
  private final String reader;
  private final boolean showsIds;
  private final List<FieldSchema> columns;
  private final List<String> keys = new ArrayList<>();

  TableRows(Session session, HiveConf conf, JsonObject request) throws Exception {
    this.session = session;
    String name = request.get("table").getAsString();
    Table table = Hive.get(conf).getTable(name);
    columns = table.getCols();
    table.getPartitionKeys().forEach(key -> keys.add(key.getName()));
    reader = request.get("reader").getAsString();
    showsIds = request.get("row_ids").getAsBoolean() && (reader.equals("row") || Line.VECTORS_SHOW_IDS);
    List<String> selected = new ArrayList<>();
    if (showsIds) {
      selected.add("ROW__ID");
    }
    columns.forEach(column -> selected.add("`" + column.getName() + "`"));
    keys.forEach(key -> selected.add("`" + key + "`"));
    query = "SELECT " + String.join(", ", selected) + " FROM " + name;
  }

  JsonObject read() throws Exception {
    JsonObject answer = new JsonObject();
    List<String> types = new ArrayList<>();
    columns.forEach(column -> types.add(column.getType()));
    answer.add("types", Judge.array(types));
    JsonArray rows = new JsonArray();
    for (JsonElement row : session.sql(query, "default", reader.equals("row") ? BY_ROWS : BY_VECTORS).getAsJsonArray("rows")) {
      rows.add(arranged(row.getAsJsonArray()));
    }
    answer.add("rows", rows);
    return answer;
  }

  private JsonArray arranged(JsonArray selected) {
    int first = showsIds ? 1 : 0;
    JsonArray values = new JsonArray();
    for (int i = 0; i < columns.size(); i++) {
      values.add(selected.get(first + i));
    }
    List<String> keyValues = new ArrayList<>();
    for (int i = 0; i < keys.size(); i++) {
      JsonElement value = selected.get(first + columns.size() + i);
      keyValues.add(value.isJsonNull() ? null : value.getAsString());
    }
    JsonArray row = new JsonArray();
    row.add(FileUtils.makePartName(keys, keyValues));
    row.add(showsIds ? identifier(selected.get(0)) : JsonNull.INSTANCE);
    row.add(values);
    return row;
  }

  private static JsonElement identifier(JsonElement text) {
    if (text.isJsonNull()) {
      return text;
    }
    JsonArray identifier = new JsonArray();
    JsonParser.parseString(text.getAsString()).getAsJsonObject().entrySet().forEach(each -> identifier.add(each.getValue()));
    return identifier;
  }
}
