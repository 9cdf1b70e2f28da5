"""The command hive-mutate."""
