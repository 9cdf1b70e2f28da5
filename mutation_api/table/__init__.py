"""The descriptor of a table that travels to workers, partitions, buckets, and SQL over rows."""
