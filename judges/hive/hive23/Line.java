package judge;

import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.sql.Date;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.ValidReadTxnList;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.MetaStoreThread;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils;
import org.apache.hadoop.hive.shims.ShimLoader;

/** Differences of Hive 2.3, among them readers of directories without a metastore. */
final class Line {
  /** A query for ROW__ID is never vectorised. */
  static final boolean VECTORS_SHOW_IDS = false;

  private Line() {}

  static String orcVersion() {
    return org.apache.orc.OrcUtils.getOrcVersion();
  }

  static void settings(Map<String, String> settings, File directory) {
    settings.put("datanucleus.connectionPoolingType", "HikariCP"); // BoneCP, the default, is not among the jars
    settings.put("hive.execution.engine", "mr");
    settings.put("hive.cbo.enable", "false"); // Calcite is not among the jars
    settings.put("hive.stats.autogather", "false");
    settings.put("hive.exec.submit.local.task.via.child", "false"); // would start a JVM for each map join
    settings.put("hive.exec.submitviachild", "false");
    settings.put("hive.compactor.initiator.on", "true");
    settings.put("hive.compactor.worker.threads", "1");
    // pyspark's ORC is newer than Hive 2.3's and would choose ZSTD, which that Hive cannot read.
    settings.put("orc.compress", "ZLIB");
  }

  /** DataNucleus creates all tables except those of transactions and locks. */
  static void makeTables(HiveConf conf) throws Exception {
    TxnDbUtil.prepDb(conf);
  }

  static SessionState start(HiveConf conf) {
    SessionState state = new SessionState(conf);
    state.out = state.err = state.info = System.err;
    return SessionState.start(state);
  }

  static void startMetaStore(int port, HiveConf conf) throws Throwable {
    HiveMetaStore.startMetaStore(port, ShimLoader.getHadoopThriftAuthBridge(), conf);
  }

  static void run(Driver driver, String text) throws Exception {
    CommandProcessorResponse response = driver.run(text);
    if (response.getResponseCode() != 0) {
      throw new Session.SqlException(response.getErrorMessage(), response.getException());
    }
  }

  static void runOnce(MetaStoreThread thread, HiveConf conf) throws Exception {
    thread.setThreadId(1);
    thread.setHiveConf(conf);
    thread.init(new AtomicBoolean(true), new AtomicBoolean()); // already told to stop, so it runs one round
    ((Thread) thread).run();
  }

  static int hash(int version, Object[] values, ObjectInspector[] inspectors) {
    if (version != 1) {
      throw new IllegalArgumentException("Hive 2.3 knows the bucket hash of version 1 only, not of version " + version);
    }
    return ObjectInspectorUtils.getBucketHashCode(values, inspectors);
  }

  static Date date(String text) {
    return Date.valueOf(text);
  }

  static Timestamp timestamp(String text) {
    return Timestamp.valueOf(text);
  }

  static void addActions(Map<String, Judge.Action> actions) {
    actions.put("read", request -> new TableReader(request).read());
    actions.put("orc", request -> OrcFile.describe(request));
  }

  static AcidUtils.Directory acidState(Path directory, JsonObject valid) throws IOException {
    return AcidUtils.getAcidState(
        directory, new Configuration(), new ValidReadTxnList(valid.get("txns").getAsString()));
  }

  static List<Path> obsolete(AcidUtils.Directory state) {
    List<Path> paths = new ArrayList<>();
    for (FileStatus each : state.getObsolete()) {
      paths.add(each.getPath());
    }
    return paths;
  }
}
