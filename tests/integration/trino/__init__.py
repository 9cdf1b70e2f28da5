"""A real Trino beside Hive and this library, on the same tables."""
