"""Real Hive as judge."""
