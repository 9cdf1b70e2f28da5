"""Merge, diff and files of changes, which turn a desired state of rows into operations on ROW__IDs."""
