package writers;

import org.apache.hadoop.conf.Configuration;

/** Settings for both writers, so that files are as ours: packed with zlib, no checksum files beside them. */
final class Settings {
  private Settings() {}

  static <C extends Configuration> C applied(C conf) {
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    conf.set("orc.compress", "ZLIB"); // the default of the ORC among pyspark's jars is one that Hive 2.3 cannot read
    return conf;
  }
}
