"""Merges and comparisons of Arrow data in this process, without Spark."""
