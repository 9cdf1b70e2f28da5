"""The command ``hive-mutate``."""
