"""Programs that are not ours and judge what we wrote: real Hive, run from the jars that pyspark brings."""
