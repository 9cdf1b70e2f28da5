"""From an ORC file to its events, as Arrow batches."""
