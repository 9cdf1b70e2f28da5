"""From task output to a committed transaction."""
