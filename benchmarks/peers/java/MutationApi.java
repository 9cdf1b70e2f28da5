package writers;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.ql.io.AcidOutputFormat;
import org.apache.hadoop.hive.ql.io.RecordIdentifier;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspector;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory;
import org.apache.hadoop.hive.serde2.objectinspector.ObjectInspectorFactory.ObjectInspectorOptions;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;
import org.apache.hive.hcatalog.streaming.mutate.client.MutatorClient;
import org.apache.hive.hcatalog.streaming.mutate.client.MutatorClientBuilder;
import org.apache.hive.hcatalog.streaming.mutate.client.Transaction;
import org.apache.hive.hcatalog.streaming.mutate.worker.BucketIdResolver;
import org.apache.hive.hcatalog.streaming.mutate.worker.BucketIdResolverImpl;
import org.apache.hive.hcatalog.streaming.mutate.worker.Mutator;
import org.apache.hive.hcatalog.streaming.mutate.worker.MutatorCoordinator;
import org.apache.hive.hcatalog.streaming.mutate.worker.MutatorCoordinatorBuilder;
import org.apache.hive.hcatalog.streaming.mutate.worker.MutatorFactory;
import org.apache.hive.hcatalog.streaming.mutate.worker.MutatorImpl;
import org.apache.hive.hcatalog.streaming.mutate.worker.RecordInspector;
import org.apache.hive.hcatalog.streaming.mutate.worker.RecordInspectorImpl;

/** Inserts through Hive's Mutation API, a record at a time, the only way it knows. */
final class MutationApi {
  private static final int RECORD_ID_COLUMN = Rows.NAMES.size();
  private static final int[] BUCKET_COLUMNS = {0};

  private MutationApi() {}

  /** Writes all rows into a table in one transaction, commit included; returns the seconds it took. */
  static double write(Rows rows, String uri, String database, String table) throws Exception {
    HiveConf conf = Settings.applied(new HiveConf(MutationApi.class));
    conf.set("hive.metastore.uris", uri);
    Factory factory = new Factory(conf, inspector());
    long started = System.nanoTime();
    MutatorClient client =
        new MutatorClientBuilder().configuration(conf).metaStoreUri(uri).addSinkTable(database, table, false).build();
    client.connect();
    try {
      Transaction transaction = client.newTransaction();
      transaction.begin();
      try (MutatorCoordinator coordinator =
          new MutatorCoordinatorBuilder()
              .configuration(conf)
              .metaStoreUri(uri)
              .table(client.getTables().get(0))
              .mutatorFactory(factory)
              .build()) {
        insertAll(rows, coordinator, factory.newBucketIdResolver(rows.buckets));
      }
      transaction.commit();
    } finally {
      client.close();
    }
    return (System.nanoTime() - started) / 1e9;
  }

  private static void insertAll(Rows rows, MutatorCoordinator coordinator, BucketIdResolver resolver) throws Exception {
    // a bucket can be attached to no other kind of list
    List<Object> record = new ArrayList<>(Arrays.asList(null, null, null, null));
    for (int partition = 0; partition < rows.partitions; partition++) {
      List<String> values = List.of(Rows.partitionValue(partition));
      int end = rows.first(partition + 1, 0);
      for (int i = rows.first(partition, 0); i < end; i++) {
        record.set(0, rows.ids[i]);
        record.set(1, rows.messages[i]);
        record.set(2, rows.values[i]);
        coordinator.insert(values, resolver.attachBucketIdToRecord(record));
      }
    }
  }

  /** Of records that are lists: the columns, then the ROW__ID. */
  private static ObjectInspector inspector() {
    List<String> names = new ArrayList<>(Rows.NAMES);
    List<ObjectInspector> fields = new ArrayList<>();
    for (TypeInfo type : Rows.TYPES) {
      fields.add(TypeInfoUtils.getStandardJavaObjectInspectorFromTypeInfo(type));
    }
    names.add("row_id");
    fields.add(
        ObjectInspectorFactory.getReflectionObjectInspector(RecordIdentifier.class, ObjectInspectorOptions.JAVA));
    return ObjectInspectorFactory.getStandardStructObjectInspector(names, fields);
  }

  private record Factory(HiveConf conf, ObjectInspector inspector) implements MutatorFactory {
    @Override
    public Mutator newMutator(AcidOutputFormat<?, ?> format, long txn, Path partition, int bucket) throws IOException {
      return new MutatorImpl(conf, RECORD_ID_COLUMN, inspector, format, txn, partition, bucket);
    }

    @Override
    public RecordInspector newRecordInspector() {
      return new RecordInspectorImpl(inspector, RECORD_ID_COLUMN);
    }

    @Override
    public BucketIdResolver newBucketIdResolver(int totalBuckets) {
      return new BucketIdResolverImpl(inspector, RECORD_ID_COLUMN, totalBuckets, BUCKET_COLUMNS);
    }
  }
}
