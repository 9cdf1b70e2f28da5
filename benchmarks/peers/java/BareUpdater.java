package writers;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.ql.io.AcidOutputFormat;
import org.apache.hadoop.hive.ql.io.RecordUpdater;
import org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat;
import org.apache.hadoop.hive.ql.io.orc.OrcRecordUpdater;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hadoop.mapred.Reporter;

/** Inserts with Hive's RecordUpdater alone: no metastore, no bucket computed, nothing checked, nothing committed. */
final class BareUpdater {
  private BareUpdater() {}

  /** Writes each group's rows into the delta of a transaction below {@code folder}; returns the seconds it took. */
  static double write(Rows rows, String folder, long txn) throws IOException {
    Configuration conf = Settings.applied(new Configuration());
    ObjectInspector inspector = inspector();
    long started = System.nanoTime();
    for (int partition = 0; partition < rows.partitions; partition++) {
      Path directory = new Path(folder, "ds=" + Rows.partitionValue(partition));
      for (int bucket = 0; bucket < rows.buckets; bucket++) {
        RecordUpdater updater = open(conf, inspector, directory, bucket, txn);
        int end = rows.first(partition, bucket + 1);
        for (int i = rows.first(partition, bucket); i < end; i++) {
          updater.insert(txn, Arrays.asList((Object) rows.ids[i], rows.messages[i], rows.values[i]));
        }
        updater.close(false);
      }
    }
    return (System.nanoTime() - started) / 1e9;
  }

  private static ObjectInspector inspector() {
    List<ObjectInspector> fields =
        Rows.TYPES.stream().map((TypeInfo t) -> TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(t)).toList();
    return ObjectInspectorFactory.getStandardStructObjectInspector(Rows.NAMES, fields);
  }

  private static RecordUpdater open(Configuration conf, ObjectInspector inspector, Path directory, int bucket, long txn)
      throws IOException {
    Properties properties = new Properties();
    properties.setProperty("transactional", "true");
    properties.setProperty("orc.compress", "ZLIB");
    AcidOutputFormat.Options options =
        new OrcRecordUpdater.OrcOptions(conf)
            .inspector(inspector)
            .recordIdColumn(-1)
            .bucket(bucket)
            .minimumTransactionId(txn)
            .maximumTransactionId(txn)
            .statementId(-1)
            .finalDestination(directory)
            .reporter(Reporter.NULL)
            .tableProperties(properties);
    return new OrcOutputFormat().getRecordUpdater(directory, options);
  }
}
