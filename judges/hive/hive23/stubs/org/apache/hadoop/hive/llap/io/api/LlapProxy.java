package org.apache.hadoop.hive.llap.io.api;

/** Not among pyspark's jars; Hive asks it whether this process is an LLAP daemon, which a judge never is. */
public class LlapProxy {
  public static boolean isDaemon() {
    return false;
  }

  public static Object getIo() {
    return null;
  }
}
