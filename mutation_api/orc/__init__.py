"""ORC files: their format, writing and reading them."""
