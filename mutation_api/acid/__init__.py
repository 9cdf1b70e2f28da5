"""Rules of the ACID file format: pure functions on values and arrays."""
