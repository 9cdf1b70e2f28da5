"""Which bucket a row belongs to: hashes of both bucketing versions. Pure functions on values and arrays."""
