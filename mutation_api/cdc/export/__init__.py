"""Exports: keep copies of Hive ACID tables in Delta Lake and Apache Iceberg in step. See DESIGN.md."""
