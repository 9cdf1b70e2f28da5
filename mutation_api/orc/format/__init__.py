"""The parts of an ORC file that are neither rows nor events: tail, statistics, streams."""
