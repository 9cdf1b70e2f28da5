"""Programs of others that judge what we wrote: real Hive, run from pyspark's jars, and real stores."""
