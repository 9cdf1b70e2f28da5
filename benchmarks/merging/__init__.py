"""What the benchmarks of merges share."""
