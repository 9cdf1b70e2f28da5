"""The job that reads: a snapshot becomes a DataFrame."""
