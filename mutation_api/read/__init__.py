"""Rows of a snapshot as Arrow batches, without Spark: which files count, scans, exports."""
