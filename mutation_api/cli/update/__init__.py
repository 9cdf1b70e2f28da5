"""``hive-mutate update``: a module for each action, and the command itself."""

from mutation_api.cli.update.command import add_arguments, run

__all__ = ["add_arguments", "run"]
