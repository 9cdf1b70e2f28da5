"""Incremental update: changes of a table in a relational database, applied to a Hive table."""
