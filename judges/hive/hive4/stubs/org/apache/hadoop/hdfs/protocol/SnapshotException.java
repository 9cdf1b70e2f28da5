package org.apache.hadoop.hdfs.protocol;

/** Hive only catches it; the jar of the HDFS server is left out. */
public class SnapshotException extends java.io.IOException {
  private static final long serialVersionUID = 1L;
}
