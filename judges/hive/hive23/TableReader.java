package judge;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.io.Output;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.exec.vector.LongColumnVector;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatch;
import org.apache.hadoop.hive.ql.exec.vector.VectorizedRowBatchCtx;
import org.apache.hadoop.hive.ql.io.AcidInputFormat;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.io.RecordIdentifier;
import org.apache.hadoop.hive.ql.io.orc.OrcInputFormat;
import org.apache.hadoop.hive.ql.io.orc.OrcSplit;
import org.apache.hadoop.hive.ql.io.orc.OrcStruct;
import org.apache.hadoop.hive.ql.io.orc.VectorizedOrcAcidRowBatchReader;
import org.apache.hadoop.hive.ql.io.sarg.PredicateLeaf;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgument;
import org.apache.hadoop.hive.ql.io.sarg.SearchArgumentFactory;
import org.apache.hadoop.hive.serde2.ColumnProjectionUtils;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.typeinfo.StructTypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.mapred.InputSplit;
import org.apache.hadoop.mapred.JobConf;
import org.apache.hadoop.mapred.RecordReader;
import org.apache.hadoop.mapred.Reporter;

/**
 * Reads an ACID table's directory as a Hive task does: OrcInputFormat's splits, then one of its two readers.
 *
 * <p>Partition directories ({@code key=value}) are found below the directory. The answer's {@code rows} are
 * [partition, [original transaction, bucket, row id] or null, [value, ...]]. The vectorised reader of legacy tables hides
 * the identifiers.
 */
final class TableReader {
  private static final String PARTITION_DIRECTORY = "[^=._]+[^=]*=.*";

  private final Path root;
  private final JsonObject request;
  private final boolean vectorised;
  private final StructTypeInfo rowType;
  private final JsonArray rows = new JsonArray();
  private final JsonArray splits = new JsonArray();

  TableReader(JsonObject request) {
    this.root = DirectoryState.path(request.get("directory").getAsString());
    this.request = request;
    this.vectorised = request.get("reader").getAsString().equals("vector");
    this.rowType = (StructTypeInfo) TypeInfoUtils.getTypeInfoFromTypeString(request.get("row_type").getAsString());
  }

  JsonObject read() throws Exception {
    List<String> partitions = new ArrayList<>();
    findPartitions(root.getFileSystem(new HiveConf()), root, "", partitions);
    for (String partition : partitions) {
      readPartition(partition);
    }
    JsonObject answer = new JsonObject();
    answer.add("rows", rows);
    answer.add("splits", splits);
    return answer;
  }

  private static void findPartitions(FileSystem files, Path directory, String name, List<String> found) throws IOException {
    FileStatus[] children;
    try {
      children = files.listStatus(directory);
    } catch (FileNotFoundException e) {
      if (files.getScheme().equals("s3a")) {
        return; // an empty table has no directories
      }
      throw new IOException("not a directory: " + directory, e);
    }
    Arrays.sort(children);
    boolean isLeaf = true;
    for (FileStatus child : children) {
      String key = child.getPath().getName();
      if (child.isDirectory() && key.matches(PARTITION_DIRECTORY)) {
        isLeaf = false;
        findPartitions(files, child.getPath(), name.isEmpty() ? key : name + "/" + key, found);
      }
    }
    if (isLeaf) {
      found.add(name);
    }
  }

  private void readPartition(String partition) throws Exception {
    JobConf conf = jobConf(partition.isEmpty() ? root : new Path(root + "/" + partition));
    OrcInputFormat format = new OrcInputFormat();
    InputSplit[] unordered = format.getSplits(conf, 1);
    List<OrcSplit> ordered = new ArrayList<>();
    for (InputSplit split : unordered) {
      ordered.add((OrcSplit) split);
    }
    ordered.sort(Comparator.comparing((OrcSplit s) -> s.getPath().toString()).thenComparing(OrcSplit::getStart));
    for (OrcSplit split : ordered) {
      describe(split);
      if (vectorised) {
        readVectors(format, split, conf, partition);
      } else {
        readRows(format, split, conf, partition);
      }
    }
  }

  private JobConf jobConf(Path partition) {
    boolean isSplitUpdate = request.get("transactional_properties").getAsString().equals("default");
    JobConf conf = new JobConf(new HiveConf());
    List<String> typeNames = new ArrayList<>();
    for (TypeInfo type : rowType.getAllStructFieldTypeInfos()) {
      typeNames.add(type.getTypeName());
    }
    String names = String.join(",", rowType.getAllStructFieldNames());
    conf.set("columns", names);
    conf.set("columns.types", String.join(":", typeNames));
    conf.set("schema.evolution.columns", names);
    conf.set("schema.evolution.columns.types", String.join(":", typeNames));
    conf.set(ColumnProjectionUtils.READ_COLUMN_NAMES_CONF_STR, names);
    conf.set("bucket_count", request.get("buckets").getAsString());
    conf.set("hive.txn.valid.txns", request.get("valid_txns").getAsString());
    conf.set("mapred.input.dir", partition.toString());
    conf.setBoolean("transactional", true);
    if (isSplitUpdate) {
      conf.set("transactional_properties", "default");
    }
    AcidUtils.setTransactionalTableScan(conf, true);
    AcidUtils.setAcidOperationalProperties(conf, isSplitUpdate
        ? AcidUtils.AcidOperationalProperties.getDefault() : AcidUtils.AcidOperationalProperties.getLegacy());
    ColumnProjectionUtils.setReadAllColumns(conf);
    if (!request.get("where").isJsonNull()) {
      conf.set("sarg.pushdown", searchArgument(request.getAsJsonArray("where")));
    }
    for (Map.Entry<String, JsonElement> setting : request.getAsJsonObject("settings").entrySet()) {
      conf.set(setting.getKey(), setting.getValue().getAsString());
    }
    return conf;
  }

  /** A pushed-down predicate [column, operator, literal]: readers may skip rows that cannot match, but need not. */
  private static String searchArgument(JsonArray where) {
    String column = where.get(0).getAsString();
    boolean isNumber = where.get(2).getAsJsonPrimitive().isNumber();
    PredicateLeaf.Type type = isNumber ? PredicateLeaf.Type.LONG : PredicateLeaf.Type.STRING;
    Object literal = isNumber ? (Object) where.get(2).getAsLong() : where.get(2).getAsString();
    SearchArgument.Builder builder = SearchArgumentFactory.newBuilder().startAnd();
    switch (where.get(1).getAsString()) {
      case "=":
        builder.equals(column, type, literal);
        break;
      case "<":
        builder.lessThan(column, type, literal);
        break;
      case "<=":
        builder.lessThanEquals(column, type, literal);
        break;
      default:
        throw new IllegalArgumentException("operator " + where.get(1) + " is not one of =, <, <=");
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (Output output = new Output(bytes)) {
      new Kryo().writeObject(output, builder.end().build());
    }
    return Base64.getMimeEncoder().encodeToString(bytes.toByteArray());
  }

  private void describe(OrcSplit split) {
    JsonObject description = new JsonObject();
    description.addProperty("path", DirectoryState.relative(root, split.getPath()));
    description.addProperty("start", split.getStart());
    description.addProperty("length", split.getLength());
    description.addProperty("has_base", split.hasBase());
    description.addProperty("is_original", split.isOriginal());
    splits.add(description);
  }

  private void emit(String partition, JsonElement recordIdentifier, JsonElement values) {
    JsonArray row = new JsonArray();
    row.add(new JsonPrimitive(partition));
    row.add(recordIdentifier);
    row.add(values);
    rows.add(row);
  }

  private void readRows(OrcInputFormat format, OrcSplit split, JobConf conf, String partition) throws Exception {
    AcidInputFormat.RowReader<OrcStruct> reader =
        format.getReader(split, new AcidInputFormat.Options(conf).reporter(Reporter.NULL));
    try {
      ObjectInspector inspector = reader.getObjectInspector();
      RecordIdentifier key = reader.createKey();
      OrcStruct value = reader.createValue();
      while (reader.next(key, value)) {
        JsonArray identifier = Judge.array(key.getTransactionId(), key.getBucketId(), key.getRowId());
        emit(partition, identifier, ReaderValues.json(value, inspector));
      }
    } finally {
      reader.close();
    }
  }

  private void readVectors(OrcInputFormat format, OrcSplit split, JobConf conf, String partition) throws Exception {
    List<TypeInfo> types = rowType.getAllStructFieldTypeInfos();
    RecordReader<NullWritable, VectorizedRowBatch> reader = vectorReader(format, split, conf);
    try {
      VectorizedRowBatch batch = reader.createValue();
      VectorizedRowBatch events = reader instanceof VectorizedOrcAcidRowBatchReader
          ? (VectorizedRowBatch) field("vectorizedRowBatchBase").get(reader) : null;
      while (reader.next(NullWritable.get(), batch)) {
        for (int i = 0; i < batch.size; i++) {
          int at = batch.selectedInUse ? batch.selected[i] : i;
          JsonArray values = new JsonArray();
          for (int column = 0; column < types.size(); column++) {
            values.add(ReaderValues.json(batch.cols[column], at, types.get(column)));
          }
          emit(partition, events == null ? JsonNull.INSTANCE : identifier(events, at), values);
        }
      }
    } finally {
      reader.close();
    }
  }

  /** A reader takes its column context from the query plan; without a plan, it is passed explicitly. */
  @SuppressWarnings("unchecked")
  private RecordReader<NullWritable, VectorizedRowBatch> vectorReader(OrcInputFormat format, OrcSplit split, JobConf conf)
      throws Exception {
    VectorizedRowBatchCtx context = new VectorizedRowBatchCtx(rowType.getAllStructFieldNames().toArray(new String[0]),
        rowType.getAllStructFieldTypeInfos().toArray(new TypeInfo[0]), null, 0, new String[0]);
    if (VectorizedOrcAcidRowBatchReader.canCreateVectorizedAcidRowBatchReaderOnSplit(conf, split)) {
      VectorizedOrcAcidRowBatchReader reader = new VectorizedOrcAcidRowBatchReader(split, conf, Reporter.NULL);
      field("rbCtx").set(reader, context);
      return reader;
    }
    Constructor<?> constructor = Class.forName("org.apache.hadoop.hive.ql.io.orc.VectorizedOrcAcidRowReader")
        .getDeclaredConstructors()[0];
    constructor.setAccessible(true);
    return (RecordReader<NullWritable, VectorizedRowBatch>) constructor.newInstance(
        format.getReader(split, new AcidInputFormat.Options(conf).reporter(Reporter.NULL)), conf, context, split);
  }

  private static Field field(String name) throws NoSuchFieldException {
    Field field = VectorizedOrcAcidRowBatchReader.class.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  /** The split-update reader hides the identifiers as well, but the underlying batch of events has them. */
  private static JsonArray identifier(VectorizedRowBatch events, int at) {
    long[] identifier = new long[3];
    for (int i = 0; i < 3; i++) {
      LongColumnVector vector = (LongColumnVector) events.cols[i + 1];
      identifier[i] = vector.vector[vector.isRepeating ? 0 : at];
    }
    return Judge.array(identifier);
  }
}
