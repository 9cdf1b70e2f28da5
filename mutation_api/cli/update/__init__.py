"""``hive-mutate update``: one module per action, and the command itself."""

from mutation_api.cli.update.command import add_arguments, run

__all__ = ["add_arguments", "run"]
