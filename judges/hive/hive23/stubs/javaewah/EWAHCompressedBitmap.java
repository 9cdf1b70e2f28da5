package javaewah;

/** Not among pyspark's jars; Hive's function registry needs the name to load its bitmap functions, which are never called. */
public class EWAHCompressedBitmap {}
