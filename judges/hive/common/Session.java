package judge;

import com.google.gson.JsonArray;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.ql.Driver;
import org.apache.hadoop.hive.ql.session.SessionState;

/** Hive's SQL with its metastore in this process; the same metastore can be offered over Thrift. */
final class Session {
  private static final int MAX_ROWS = 100_000_000;
  private static final long SERVE_TIMEOUT_MILLIS = 60_000;

  private final HiveConf conf;
  private final SessionState state;
  private String uri;

  Session(HiveConf conf) throws Exception {
    this.conf = conf;
    if (conf.get("hive.metastore.uris", "").isEmpty()) {
      Line.makeTables(conf);
    }
    state = Line.start(conf);
  }

  Compactor compactor() {
    return new Compactor(conf);
  }

  /** Offer the metastore of this process on a free port; a second request returns the same address. */
  JsonObject serve() throws Exception {
    if (uri == null) {
      int port;
      try (ServerSocket probe = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
        port = probe.getLocalPort();
      }
      Thread server = new Thread(() -> {
        try {
          Line.startMetaStore(port, new HiveConf(conf));
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
    Map<String, String> settings = new LinkedHashMap<>();
    request.getAsJsonObject("settings").entrySet().forEach(each -> settings.put(each.getKey(), each.getValue().getAsString()));
    return sql(request.get("text").getAsString(), request.get("database").getAsString(), settings);
  }

  JsonObject sql(String text, String database, Map<String, String> settings) throws Exception {
    state.setCurrentDatabase(database);
    Map<String, String> before = new HashMap<>();
    settings.forEach((name, value) -> {
      before.put(name, conf.get(name));
      conf.set(name, value);
    });
    try {
      return run(text);
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

  /** One driver for each statement, since a driver keeps its first configuration. */
  private JsonObject run(String text) throws Exception {
    Driver driver = new Driver(conf);
    try {
      Line.run(driver, text);
      JsonObject answer = new JsonObject();
      answer.add("columns", columns(driver));
      answer.add("rows", rows(driver));
      return answer;
    } finally {
      driver.close();
      driver.destroy();
    }
  }

  private static JsonArray columns(Driver driver) {
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

  @SuppressWarnings({"rawtypes", "unchecked"})
  private static JsonArray rows(Driver driver) throws Exception {
    driver.setMaxRows(MAX_ROWS);
    JsonArray rows = new JsonArray();
    List<Object> batch = new ArrayList<>();
    while (driver.getResults((List) batch)) {
      for (Object row : batch) {
        rows.add(row(row));
      }
      batch.clear();
    }
    return rows;
  }

  /** A query returns arrays of Java objects, a statement such as SHOW returns lines with tabs. */
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
    long millis = request.get("older_than_millis").getAsLong();
    // Hive 4 finds them by the store's time-out and aborts them by the configuration's. If the two differ, it tries
    // for ever.
    HiveConf timed = new HiveConf(conf);
    timed.set("hive.txn.timeout", millis + "ms");
    timed.set("metastore.txn.timeout", millis + "ms");
    TxnStore store = TxnUtils.getTxnStore(timed);
    long before = store.setTimeout(millis);
    try {
      store.performTimeOuts();
    } finally {
      store.setTimeout(before);
    }
    return new JsonObject();
  }

  /** Query the metastore's own tables; every value as text. */
  JsonObject metastoreRows(JsonObject request) throws Exception {
    JsonArray rows = new JsonArray();
    try (Connection connection = DriverManager.getConnection(conf.get("javax.jdo.option.ConnectionURL"));
        Statement statement = connection.createStatement();
        ResultSet result = statement.executeQuery(request.get("select").getAsString())) {
      while (result.next()) {
        JsonArray row = new JsonArray();
        for (int column = 1; column <= result.getMetaData().getColumnCount(); column++) {
          row.add(result.getString(column));
        }
        rows.add(row);
      }
    }
    JsonObject answer = new JsonObject();
    answer.add("rows", rows);
    return answer;
  }

  /** A statement that Hive refused or could not finish. */
  static final class SqlException extends Exception {
    private static final long serialVersionUID = 1L;

    SqlException(String message, Throwable cause) {
      super(message, cause);
    }
  }
}
