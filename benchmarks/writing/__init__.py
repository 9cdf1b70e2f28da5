"""What the benchmarks that write share."""
