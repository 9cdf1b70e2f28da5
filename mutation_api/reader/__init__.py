"""From the files of a table to the rows of a snapshot: what to read, and merging it."""
