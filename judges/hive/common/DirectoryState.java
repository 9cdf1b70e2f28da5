package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.shims.HadoopShims;

/** Which of a directory's bases, deltas and original files Hive would read: AcidUtils.getAcidState. */
final class DirectoryState {
  private DirectoryState() {}

  static JsonObject of(JsonObject request) throws Exception {
    Path directory = path(request.get("directory").getAsString());
    var state = Line.acidState(directory, request.getAsJsonObject("valid")); // the class differs between releases
    List<String> deltas = new ArrayList<>();
    for (AcidUtils.ParsedDelta delta : state.getCurrentDirectories()) {
      deltas.add(delta.getPath().getName());
    }
    List<String> originals = new ArrayList<>();
    for (HadoopShims.HdfsFileStatusWithId original : state.getOriginalFiles()) {
      originals.add(relative(directory, original.getFileStatus().getPath()));
    }
    List<String> obsolete = new ArrayList<>();
    for (Path each : Line.obsolete(state)) {
      obsolete.add(relative(directory, each));
    }
    Path base = state.getBaseDirectory();
    JsonElement baseName = base == null ? JsonNull.INSTANCE : new JsonPrimitive(base.getName());
    JsonObject answer = new JsonObject();
    answer.add("base", baseName);
    answer.add("deltas", Judge.array(deltas));
    answer.add("originals", Judge.array(originals));
    answer.add("obsolete", Judge.array(obsolete));
    return answer;
  }

  /** A location with its scheme, or a path of this machine. */
  static Path path(String text) {
    return text.matches("[a-z0-9]+:/.*") ? new Path(text) : new Path(new File(text).toURI());
  }

  static String relative(Path directory, Path path) {
    return new File(directory.toUri().getPath()).toPath().relativize(new File(path.toUri().getPath()).toPath()).toString();
  }
}
