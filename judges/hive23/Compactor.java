package hive23;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.MetaStoreThread;
import org.apache.hadoop.hive.metastore.api.ShowCompactRequest;
import org.apache.hadoop.hive.metastore.api.ShowCompactResponseElement;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.ql.txn.compactor.Cleaner;
import org.apache.hadoop.hive.ql.txn.compactor.Initiator;
import org.apache.hadoop.hive.ql.txn.compactor.Worker;

/** Hive's own compactor threads, one round at a time, in the calling thread. */
final class Compactor {
  private final HiveConf conf;

  Compactor(HiveConf conf) {
    this.conf = conf;
  }

  JsonObject worker() throws Exception {
    return round(new Worker());
  }

  JsonObject initiator() throws Exception {
    return round(new Initiator());
  }

  JsonObject cleaner() throws Exception {
    return round(new Cleaner());
  }

  /** The threads log their failures and go on, so the answer lists what became of every compaction. */
  private JsonObject round(MetaStoreThread thread) throws Exception {
    thread.setThreadId(1);
    thread.setHiveConf(conf);
    thread.init(new AtomicBoolean(true), new AtomicBoolean()); // told to stop from the start: one round
    ((Thread) thread).run();
    return compactions();
  }

  JsonObject compactions() throws Exception {
    JsonArray compactions = new JsonArray();
    for (ShowCompactResponseElement each : TxnUtils.getTxnStore(conf).showCompact(new ShowCompactRequest()).getCompacts()) {
      JsonObject compaction = new JsonObject();
      compaction.addProperty("id", each.getId());
      compaction.addProperty("database", each.getDbname());
      compaction.addProperty("table", each.getTablename());
      compaction.addProperty("partition", each.getPartitionname());
      compaction.addProperty("kind", each.getType().toString().toLowerCase());
      compaction.addProperty("state", each.getState());
      compactions.add(compaction);
    }
    JsonObject answer = new JsonObject();
    answer.add("compactions", compactions);
    return answer;
  }
}
