"""The metastore that comes with pyspark, as a process of this machine."""
