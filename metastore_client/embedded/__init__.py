"""The metastore that comes with pyspark, run as a process on this machine."""
