package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;

/** Hive's bucket hashes of rows of values. */
final class BucketHash {
  private BucketHash() {}

  static JsonObject of(JsonObject request) {
    JsonArray typeNames = request.getAsJsonArray("types");
    int version = request.get("version").getAsInt();
    TypeInfo[] types = new TypeInfo[typeNames.size()];
    ObjectInspector[] inspectors = new ObjectInspector[types.length];
    for (int i = 0; i < types.length; i++) {
      types[i] = TypeInfoUtils.getTypeInfoFromTypeString(typeNames.get(i).getAsString());
      inspectors[i] = TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(types[i]);
    }
    JsonArray hashes = new JsonArray();
    for (JsonElement row : request.getAsJsonArray("rows")) {
      Object[] values = new Object[types.length];
      for (int i = 0; i < types.length; i++) {
        values[i] = Values.parse(row.getAsJsonArray().get(i), types[i]);
      }
      hashes.add(Line.hash(version, values, inspectors));
    }
    JsonObject answer = new JsonObject();
    answer.add("hashes", hashes);
    return answer;
  }
}
