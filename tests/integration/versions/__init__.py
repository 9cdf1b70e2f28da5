"""Other versions of Spark, judged by real Hive."""
