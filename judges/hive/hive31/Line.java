package judge;

import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.ValidReaderWriteIdList;
import org.apache.hadoop.hive.common.type.Date;
import org.apache.hadoop.hive.common.type.Timestamp;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.MetaStoreThread;
import org.apache.hadoop.hive.metastore.security.HadoopThriftAuthBridge;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils;

/** Differences of Hive 3.1. */
final class Line {
  static final boolean VECTORS_SHOW_IDS = true;

  private Line() {}

  static String orcVersion() {
    return org.apache.orc.OrcFile.class.getPackage().getImplementationVersion();
  }

  static void settings(Map<String, String> settings, File directory) {
    settings.put("datanucleus.connectionPoolingType", "HikariCP");
    settings.put("hive.execution.engine", "mr");
    settings.put("hive.cbo.enable", "false"); // would need Calcite's Druid adapter
    settings.put("hive.stats.autogather", "false"); // the query that gathers column statistics would need it, too
    settings.put("hive.auto.convert.join", "false"); // a map join needs a separate JVM, or fails without CBO
    settings.put("hive.strict.checks.cartesian.product", "false");
  }

  static void makeTables(HiveConf conf) throws Exception {
    TxnDbUtil.prepDb(conf); // the tables of transactions, locks and compactions
    MappedTables.make(conf.get("javax.jdo.option.ConnectionURL"));
  }

  static SessionState start(HiveConf conf) {
    SessionState state = new SessionState(conf);
    state.out = state.err = state.info = System.err;
    return SessionState.start(state);
  }

  static void run(Driver driver, String text) throws Exception {
    CommandProcessorResponse response = driver.run(text);
    if (response.getResponseCode() != 0) {
      throw new Session.SqlException(response.getErrorMessage(), response.getException());
    }
  }

  static void runOnce(MetaStoreThread thread, HiveConf conf) throws Exception {
    thread.setThreadId(1);
    thread.setConf(conf);
    thread.init(new AtomicBoolean(true), new AtomicBoolean()); // already told to stop, so it runs one round
    ((Thread) thread).run();
  }

  static void startMetaStore(int port, HiveConf conf) throws Throwable {
    HiveMetaStore.startMetaStore(port, HadoopThriftAuthBridge.getBridge(), conf);
  }

  static int hash(int version, Object[] values, ObjectInspector[] inspectors) {
    return version == 1 ? ObjectInspectorUtils.getBucketHashCodeOld(values, inspectors)
        : ObjectInspectorUtils.getBucketHashCode(values, inspectors);
  }

  static Date date(String text) {
    return Date.valueOf(text);
  }

  static Timestamp timestamp(String text) {
    return Timestamp.valueOf(text);
  }

  static void addActions(Map<String, Judge.Action> actions) {}

  static AcidUtils.Directory acidState(Path directory, JsonObject valid) throws IOException {
    return AcidUtils.getAcidState(
        directory, new Configuration(), new ValidReaderWriteIdList(valid.get("write_ids").getAsString()));
  }

  static List<Path> obsolete(AcidUtils.Directory state) {
    List<Path> paths = new ArrayList<>();
    for (FileStatus each : state.getObsolete()) {
      paths.add(each.getPath());
    }
    return paths;
  }
}
