package org.apache.hadoop.hive.llap.security;

/** Not among pyspark's jars; Hive's function registry needs the names to load a function that is never called. */
public interface LlapSigner {
  /** A name only. */
  interface Signable {}

  /** A name only. */
  class SignedMessage {}
}
