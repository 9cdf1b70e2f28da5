"""Rows of both sides by their keys, as Arrow: what merges and comparisons without Spark share."""
