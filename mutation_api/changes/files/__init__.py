"""Rows and change sets in files that people make or look at, read and written by Spark."""
