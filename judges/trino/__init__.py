"""A real Trino as judge: another reader and writer of Hive's ACID tables."""
