package hive23;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.processors.CommandProcessorResponse;
import org.apache.hadoop.hive.ql.session.SessionState;
import org.apache.hadoop.hive.shims.ShimLoader;

/** Hive's SQL driver with its metastore in this process; the same metastore can be offered over Thrift. */
final class HiveSession {
  private static final int MAX_ROWS = 100_000_000;
  private static final long SERVE_TIMEOUT_MILLIS = 60_000;

  private final HiveConf conf;
  private final SessionState state;
  private final Driver driver;
  private String uri;

  HiveSession(File directory, HiveConf conf) throws Exception {
    this.conf = conf;
    if (conf.getVar(HiveConf.ConfVars.METASTOREURIS).isEmpty()) {
      TxnDbUtil.prepDb(conf); // DataNucleus makes all tables but those of transactions and locks
    }
    state = new SessionState(conf);
    state.out = state.err = state.info = System.err;
    SessionState.start(state);
    driver = new Driver(conf);
    driver.init();
  }

  Compactor compactor() {
    return new Compactor(conf);
  }

  /** Offer the metastore of this process on a free port; a second request gives the same address. */
  JsonObject serve() throws Exception {
    if (uri == null) {
      int port;
      try (ServerSocket probe = new ServerSocket(0)) {
        port = probe.getLocalPort();
      }
      Thread server = new Thread(() -> {
        try {
          HiveMetaStore.startMetaStore(port, ShimLoader.getHadoopThriftAuthBridge(), new HiveConf(conf));
        } catch (Throwable t) {
          t.printStackTrace();
        }
      }, "metastore");
      server.setDaemon(true);
      server.start();
      await(port, server);
      uri = "thrift://127.0.0.1:" + port;
    }
    JsonObject answer = new JsonObject();
    answer.addProperty("uri", uri);
    return answer;
  }

  private static void await(int port, Thread server) throws Exception {
    long end = System.currentTimeMillis() + SERVE_TIMEOUT_MILLIS;
    while (true) {
      try (Socket socket = new Socket()) {
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1000);
        return;
      } catch (IOException e) {
        if (!server.isAlive() || System.currentTimeMillis() > end) {
          throw new IllegalStateException("the metastore does not listen on port " + port, e);
        }
        Thread.sleep(20);
      }
    }
  }

  /** Run one statement in a database with some settings, both for this statement only. */
  JsonObject sql(JsonObject request) throws Exception {
    state.setCurrentDatabase(request.get("database").getAsString());
    Map<String, String> before = new HashMap<>();
    for (Map.Entry<String, JsonElement> setting : request.getAsJsonObject("settings").entrySet()) {
      before.put(setting.getKey(), conf.get(setting.getKey()));
      conf.set(setting.getKey(), setting.getValue().getAsString());
    }
    try {
      return run(request.get("text").getAsString());
    } finally {
      before.forEach((name, value) -> {
        if (value == null) {
          conf.unset(name);
        } else {
          conf.set(name, value);
        }
      });
    }
  }

  private JsonObject run(String text) throws Exception {
    try {
      CommandProcessorResponse response = driver.run(text);
      if (response.getResponseCode() != 0) {
        throw new SqlException(response.getErrorMessage(), response.getException());
      }
      JsonObject answer = new JsonObject();
      answer.add("columns", columns());
      answer.add("rows", rows());
      return answer;
    } finally {
      driver.close();
    }
  }

  private JsonArray columns() {
    JsonArray columns = new JsonArray();
    if (driver.getSchema() != null && driver.getSchema().getFieldSchemas() != null) {
      for (FieldSchema field : driver.getSchema().getFieldSchemas()) {
        JsonArray column = new JsonArray();
        column.add(field.getName());
        column.add(field.getType());
        columns.add(column);
      }
    }
    return columns;
  }

  private JsonArray rows() throws Exception {
    driver.setMaxRows(MAX_ROWS);
    JsonArray rows = new JsonArray();
    List<Object> batch = new ArrayList<>();
    while (driver.getResults(batch)) {
      for (Object row : batch) {
        rows.add(row(row));
      }
      batch.clear();
    }
    return rows;
  }

  /** A query gives arrays of Java objects, a statement such as SHOW gives lines with tabs. */
  private static JsonArray row(Object row) {
    JsonArray values = new JsonArray();
    if (row instanceof Object[]) {
      for (Object value : (Object[]) row) {
        values.add(value == null ? JsonNull.INSTANCE : Values.primitive(value));
      }
    } else {
      for (String text : row.toString().split("\t", -1)) {
        values.add(text);
      }
    }
    return values;
  }

  /** Abort the transactions and drop the locks whose last heartbeat is older than the given time. */
  JsonObject timeOut(JsonObject request) {
    TxnStore store = TxnUtils.getTxnStore(conf);
    store.setTimeout(request.get("older_than_millis").getAsLong());
    store.performTimeOuts();
    return new JsonObject();
  }

  /** A statement that Hive refused or could not finish. */
  static final class SqlException extends Exception {
    private static final long serialVersionUID = 1L;

    SqlException(String message, Throwable cause) {
      super(message, cause);
    }
  }
}
