"""From what should be true of a table's rows to operations on ROW__IDs."""
