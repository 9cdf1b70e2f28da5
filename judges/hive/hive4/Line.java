package judge;

import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.common.ValidReaderWriteIdList;
import org.apache.hadoop.hive.common.io.SessionStream;
import org.apache.hadoop.hive.common.type.Date;
import org.apache.hadoop.hive.common.type.Timestamp;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient;
import org.apache.hadoop.hive.metastore.security.HadoopThriftAuthBridge;
import org.apache.hadoop.hive.metastore.txn.OrderedTxnHandler;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.io.AcidDirectory;
import org.apache.hadoop.hive.ql.io.AcidUtils;
import org.apache.hadoop.hive.ql.processors.CommandProcessorException;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.ql.txn.compactor.CompactorThread;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorUtils;

/** Differences of Hive 4.1 and 4.2. */
final class Line {
  /** Capabilities that HiveServer2 declares; without them the metastore refuses to create ACID tables. */
  private static final String[] CAPABILITIES = {
    "EXTWRITE", "EXTREAD", "HIVEBUCKET2", "HIVEFULLACIDREAD", "HIVEFULLACIDWRITE", "HIVECACHEINVALIDATE",
    "HIVEMANAGESTATS", "HIVEMANAGEDINSERTWRITE", "HIVEMANAGEDINSERTREAD",
  };

  static final boolean VECTORS_SHOW_IDS = true;

  private Line() {}

  static String orcVersion() {
    return org.apache.orc.OrcUtils.getOrcVersion();
  }

  static void settings(Map<String, String> settings, File directory) {
    settings.put("metastore.thrift.uris", "");
    settings.put("metastore.thrift.bind.host", "127.0.0.1");
    settings.put("hive.metastore.warehouse.external.dir", "file:" + directory + "/external");
    settings.put("hive.metastore.limit.partition.request", "-1");
    settings.put("hive.scheduled.queries.executor.enabled", "false");
    settings.put("hive.create.as.acid", "false");
    // Tez in local mode may write bucket_00000 and bucket_00000_0 into one directory, which this Hive cannot read.
    settings.put("hive.acid.direct.insert.enabled", "false");
    settings.put("hive.explain.user", "false");
    // By default 4.2 also looks at Iceberg tables for compactions; its jar is left out.
    settings.put("hive.compactor.table.optimizers", "org.apache.hadoop.hive.ql.txn.compactor.AcidTableOptimizer");
    settings.put("metastore.txn.store.impl", OrderedTxnHandler.class.getName());
    // Tez in this process, without YARN and without ports
    settings.put("hive.execution.engine", "tez");
    settings.put("tez.local.mode", "true");
    settings.put("tez.local.mode.without.network", "true");
    settings.put("tez.ignore.lib.uris", "true");
    settings.put("tez.runtime.optimize.local.fetch", "true");
    settings.put("tez.staging-dir", directory + "/tez");
    settings.put("tez.am.resource.memory.mb", "256");
    settings.put("tez.am.dag.scheduler.class", "org.apache.tez.dag.app.dag.impl.DAGSchedulerNaturalOrderControlled");
    settings.put("hive.tez.container.size", "256");
    settings.put("hive.tez.java.opts", "");
    settings.put("hive.jar.directory", directory + "/jars");
    settings.put("hive.user.install.directory", directory + "/install");
    settings.put("fs.defaultFS", "file:///");
  }

  static void makeTables(HiveConf conf) throws Exception {
    String url = conf.get("javax.jdo.option.ConnectionURL");
    TransactionTables.make(url);
    MappedTables.make(url);
  }

  static SessionState start(HiveConf conf) throws Exception {
    HiveMetaStoreClient.setProcessorIdentifier("judge");
    HiveMetaStoreClient.setProcessorCapabilities(CAPABILITIES);
    SessionState state = new SessionState(conf);
    state.initTxnMgr(conf);
    state.out = state.err = state.info = new SessionStream(System.err);
    return SessionState.start(state);
  }

  static void run(Driver driver, String text) throws Exception {
    try {
      driver.run(text);
    } catch (CommandProcessorException e) {
      throw new Session.SqlException(e.getMessage() == null ? e.toString() : e.getMessage(), e);
    }
  }

  static void runOnce(CompactorThread thread, HiveConf conf) throws Exception {
    thread.setConf(new HiveConf(conf));
    thread.init(new AtomicBoolean(true)); // already told to stop, so it runs one round
    thread.run();
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

  static AcidDirectory acidState(Path directory, JsonObject valid) throws IOException {
    Configuration conf = new Configuration();
    conf.set("hive.txn.valid.txns", valid.get("txns").getAsString()); // decides whether a compaction's directory counts
    ValidReaderWriteIdList writeIds = ValidReaderWriteIdList.fromValue(valid.get("write_ids").getAsString());
    return AcidUtils.getAcidState(directory.getFileSystem(conf), directory, conf, writeIds, null, false);
  }

  static List<Path> obsolete(AcidDirectory state) {
    return state.getObsolete();
  }
}
