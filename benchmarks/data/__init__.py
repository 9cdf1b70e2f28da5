"""Data for the benchmarks, made from seeds or fetched."""
