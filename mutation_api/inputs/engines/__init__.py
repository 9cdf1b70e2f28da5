"""What reads, reduces and merges operations: Spark's jobs, or this process alone."""
