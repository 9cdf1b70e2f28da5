"""Benchmarks: each is a module with ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> int``."""
