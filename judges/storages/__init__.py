"""Storage servers that the judges and tests use."""
