"""Merge, diff and files of changes: from what should be true of rows to operations on ROW__IDs."""
