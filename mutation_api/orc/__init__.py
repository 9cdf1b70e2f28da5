"""ORC files and the file systems they lie on."""
