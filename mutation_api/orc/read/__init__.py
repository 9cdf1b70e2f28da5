"""Reading the events of an ORC file as Arrow batches."""
