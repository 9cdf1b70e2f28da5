"""Merges of Arrow data in this process, without Spark."""
