package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.api.ShowCompactRequest;
import org.apache.hadoop.hive.metastore.api.ShowCompactResponseElement;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.ql.session.SessionState;
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
    return round(() -> Line.runOnce(new Worker(), conf));
  }

  JsonObject initiator() throws Exception {
    return round(() -> Line.runOnce(new Initiator(), conf));
  }

  JsonObject cleaner() throws Exception {
    return round(() -> Line.runOnce(new Cleaner(), conf));
  }

  /** The threads log their failures and continue, so the answer lists the state of every compaction. */
  private JsonObject round(Round round) throws Exception {
    SessionState session = SessionState.get();
    try {
      round.run();
    } finally {
      SessionState.setCurrentSessionState(session); // the round may leave another session
    }
    return compactions();
  }

  private interface Round {
    void run() throws Exception;
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
