package writers;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel.MapMode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfo;
import org.apache.hadoop.hive.serde2.typeinfo.TypeInfoUtils;

/**
 * Rows (id bigint, msg string, v double) in memory, in groups of equal size: by partition, within it by bucket.
 *
 * <p>The file: the number of rows n as a long, n ids (long), n values (double), n + 1 offsets (int) and the texts'
 * bytes (UTF-8), all little-endian.
 */
final class Rows {
  static final List<String> NAMES = List.of("id", "msg", "v");
  static final List<TypeInfo> TYPES = TypeInfoUtils.getTypeInfosFromTypeString("bigint,string,double");

  final int partitions;
  final int buckets;
  final long[] ids;
  final String[] messages;
  final double[] values;

  private Rows(int count, int partitions, int buckets) {
    this.partitions = partitions;
    this.buckets = buckets;
    ids = new long[count];
    messages = new String[count];
    values = new double[count];
  }

  static Rows read(File file, int partitions, int buckets) throws IOException {
    try (RandomAccessFile opened = new RandomAccessFile(file, "r")) {
      ByteBuffer bytes = opened.getChannel().map(MapMode.READ_ONLY, 0, opened.length()).order(ByteOrder.LITTLE_ENDIAN);
      Rows rows = new Rows(Math.toIntExact(bytes.getLong()), partitions, buckets);
      int count = rows.ids.length;
      bytes.asLongBuffer().get(rows.ids);
      bytes.position(bytes.position() + Long.BYTES * count);
      bytes.asDoubleBuffer().get(rows.values);
      bytes.position(bytes.position() + Double.BYTES * count);
      int[] offsets = new int[count + 1];
      bytes.asIntBuffer().get(offsets);
      bytes.position(bytes.position() + Integer.BYTES * (count + 1));
      byte[] texts = new byte[offsets[count]];
      bytes.get(texts);
      Arrays.setAll(
          rows.messages, i -> new String(texts, offsets[i], offsets[i + 1] - offsets[i], StandardCharsets.UTF_8));
      return rows;
    }
  }

  /** Number of a group's first row; that of the next group is where it ends. */
  int first(int partition, int bucket) {
    return (partition * buckets + bucket) * (ids.length / (partitions * buckets));
  }

  static String partitionValue(int partition) {
    return String.format("p%04d", partition);
  }
}
