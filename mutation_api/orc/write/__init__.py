"""Writing batches of events to an ORC file."""
