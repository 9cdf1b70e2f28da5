"""ORC files: format, writing and reading."""
