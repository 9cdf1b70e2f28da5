package hive23;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.ValidReadTxnList;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.shims.HadoopShims;

/** Which of a directory's bases, deltas and original files Hive would read: AcidUtils.getAcidState. */
final class DirectoryState {
  private DirectoryState() {}

  static JsonObject of(JsonObject request) throws Exception {
    Path directory = new Path(new File(request.get("directory").getAsString()).toURI());
    AcidUtils.Directory state = AcidUtils.getAcidState(
        directory, new Configuration(), new ValidReadTxnList(request.get("valid_txns").getAsString()));
    JsonArray deltas = new JsonArray();
    for (AcidUtils.ParsedDelta delta : state.getCurrentDirectories()) {
      deltas.add(delta.getPath().getName());
    }
    JsonArray originals = new JsonArray();
    for (HadoopShims.HdfsFileStatusWithId original : state.getOriginalFiles()) {
      originals.add(relative(directory, original.getFileStatus().getPath()));
    }
    JsonArray obsolete = new JsonArray();
    for (FileStatus each : state.getObsolete()) {
      obsolete.add(relative(directory, each.getPath()));
    }
    Path base = state.getBaseDirectory();
    JsonElement baseName = base == null ? JsonNull.INSTANCE : new JsonPrimitive(base.getName());
    JsonObject answer = new JsonObject();
    answer.add("base", baseName);
    answer.add("deltas", deltas);
    answer.add("originals", originals);
    answer.add("obsolete", obsolete);
    return answer;
  }

  private static String relative(Path directory, Path path) {
    return new File(directory.toUri().getPath()).toPath().relativize(new File(path.toUri().getPath()).toPath()).toString();
  }
}
