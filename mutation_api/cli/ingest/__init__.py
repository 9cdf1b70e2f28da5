"""``hive-mutate ingest``: one module per kind of change source, and the command itself."""

from mutation_api.cli.ingest.command import add_arguments, run

__all__ = ["add_arguments", "run"]
