"""Conditions and values: Arrow expressions over rows, and Hive's SQL as Arrow expressions."""
