"""Change sources: logs of operations as tools for change data capture write them, one file per format."""
