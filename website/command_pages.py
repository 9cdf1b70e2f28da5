"""The pages of commands: what their parsers say, subcommand by subcommand."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from mutation_api.cli.main import SUBCOMMANDS, _module, _parser

__all__ = ["command_pages"]

_COLUMNS = 110
_WORDS = """\
`apply`, `merge` and `diff` work without Spark and Java where files (for `diff` the table's, too) have at most
64 MiB together, `ingest` where so much is new, and say which engine it was; `--engine local` and
`--engine spark` decide otherwise. `--master yarn` and its like send the work to a
[cluster](../../clusters.md). `doctor` answers with 1 also where a table cannot be
changed. What to ask on a bad day, in which order: [Operations](../../operations.md).
"""


def command_pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of each page: one of all subcommands, one for each."""
    lines = [f"| [`{name}`]({name}.md) | {help_line} |" for name, help_line in SUBCOMMANDS.items()]
    table = "\n".join(["| subcommand | what it does |", "|---|---|", *lines])
    overview = f"# hive-mutate\n\n{_WORDS}\n{table}\n\n{_help(_parser(None, None))}"
    yield "reference/commands/index.md", overview
    for name in SUBCOMMANDS:
        yield f"reference/commands/{name}.md", _page(name)


def _page(name: str) -> str:
    parser = _subparsers(_parser(name, _module(name)))[name]
    parts = [f"# hive-mutate {name}\n", _help(parser)]
    for below, subparser in _subparsers(parser).items():
        parts += [f"\n## {name} {below}\n", _help(subparser)]
    return "\n".join(parts)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _help(parser: argparse.ArgumentParser) -> str:
    os.environ["COLUMNS"] = str(_COLUMNS)
    return f"```text\n{parser.format_help().rstrip()}\n```\n"
