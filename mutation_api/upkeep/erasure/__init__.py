"""The search for keys in every file below a table's locations, what is in the way, and the report."""
