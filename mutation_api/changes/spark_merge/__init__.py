"""Merges and comparisons of DataFrames, as Spark jobs."""
