package judge;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.hive.conf.HiveConf;

/** The configuration of the judge: everything below one work directory, ACID on, and no needless waiting. */
final class Settings {
  private Settings() {}

  static HiveConf make(File directory, String[] arguments) throws IOException {
    Files.createDirectories(new File(directory, "warehouse").toPath());
    Map<String, String> settings = new LinkedHashMap<>();
    metastore(settings, directory);
    transactions(settings);
    execution(settings, directory);
    speed(settings);
    Line.settings(settings, directory);
    for (int i = 1; i < arguments.length; i++) {
      int equals = arguments[i].indexOf('=');
      settings.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
    }
    System.setProperty("derby.stream.error.file", directory + "/derby.log");
    // Hive creates further configurations in many places; they see system properties, but not this object.
    settings.forEach(System::setProperty);
    HiveConf conf = new HiveConf(Judge.class);
    settings.forEach(conf::set);
    return conf;
  }

  private static void metastore(Map<String, String> settings, File directory) {
    settings.put("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + directory + "/metastore_db;create=true");
    settings.put("datanucleus.schema.autoCreateAll", "true");
    settings.put("hive.metastore.schema.verification", "false");
    settings.put("hive.metastore.event.db.notification.api.auth", "false");
    settings.put("hive.metastore.warehouse.dir", "file:" + directory + "/warehouse");
    settings.put("hive.notification.event.poll.interval", "0");
    settings.put("hive.server2.materializedviews.registry.impl", "DUMMY");
  }

  private static void transactions(Map<String, String> settings) {
    settings.put("hive.txn.manager", "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager");
    settings.put("hive.support.concurrency", "true");
    settings.put("hive.exec.dynamic.partition.mode", "nonstrict");
    // A statement that waits for another transaction's lock gives up within seconds instead of 100 minutes.
    settings.put("hive.lock.sleep.between.retries", "100ms");
    settings.put("hive.lock.numretries", "50");
  }

  private static void execution(Map<String, String> settings, File directory) {
    settings.put("mapreduce.framework.name", "local");
    settings.put("mapreduce.cluster.local.dir", directory + "/mapreduce");
    settings.put("hadoop.tmp.dir", directory + "/hadoop");
    settings.put("hive.exec.scratchdir", directory + "/scratch");
    settings.put("hive.exec.local.scratchdir", directory + "/scratch-local");
    settings.put("hive.downloaded.resources.dir", directory + "/resources");
    settings.put("hive.querylog.location", directory + "/querylog");
    settings.put("fs.file.impl", PlainLocalFileSystem.class.getName());
    // A repeated SELECT would be answered from the cache instead of the files.
    settings.put("hive.query.results.cache.enabled", "false");
    // Rows arrive as Java objects instead of text, so NULL differs from 'NULL' and a tab in a value does no harm.
    settings.put("list.sink.output.formatter", "org.apache.hadoop.hive.serde2.thrift.ThriftFormatter");
    settings.put("list.sink.output.protocol", "9");
  }

  private static void speed(Map<String, String> settings) {
    // A local job takes milliseconds; these are the pauses between checks whether it is done (default: 1 s, 1 s and 5 s).
    settings.put("hive.exec.counters.pull.interval", "10");
    settings.put("mapreduce.client.progressmonitor.pollinterval", "10");
    settings.put("mapreduce.client.completion.pollinterval", "10");
    settings.put("mapreduce.task.io.sort.mb", "8"); // every map task allocates all of it
    settings.put("hive.async.log.enabled", "false");
    settings.put("hive.log.explain.output", "false");
    // One process judges many states of one path; a cached footer would belong to an earlier file.
    settings.put("hive.orc.cache.stripe.details.mem.size", "0");
    settings.put("hive.metastore.server.min.threads", "4");
  }
}
