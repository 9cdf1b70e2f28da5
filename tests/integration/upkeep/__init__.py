"""Upkeep of tables, judged by Hive of each line."""
