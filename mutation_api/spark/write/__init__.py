"""The job that writes: a DataFrame of changes becomes staged files."""
