"""Executor side; also usable in a single plain process."""
