"""What a client knows of its tables: descriptors, checks, partitions."""
