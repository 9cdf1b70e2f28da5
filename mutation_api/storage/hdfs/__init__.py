"""HDFS, without a JVM."""
