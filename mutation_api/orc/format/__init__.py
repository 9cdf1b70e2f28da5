"""The parts of an ORC file other than rows and events: tail, statistics, streams."""
