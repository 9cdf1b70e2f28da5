"""The pages of commands: what their parsers say, subcommand by subcommand."""

from __future__ import annotations

import argparse
import functools
import re
import textwrap
from collections.abc import Iterator

from mutation_api.cli.main import SUBCOMMANDS, _module, _parser

COLUMNS = 85
"""As wide as a page of the site is."""
_WORDS = """\
`apply`, `merge` and `diff` work without Spark and Java where files (for `diff` the table's, too) have at most
64 MiB together, `ingest` where so much is new, and say which engine it was; `--engine local` and
`--engine spark` decide otherwise. `--master yarn` and its like send the work to a
[cluster](../../clusters.md). `doctor` answers with 1 also where a table cannot be
changed. What to ask on a bad day, in which order: [Watch and repair](../../operations.md).
"""
_GUIDES = {
    "alter-table": "[Alter a table](../../guides/alter-table.md)",
    "apply": "[Change rows](../../guides/change-rows.md)",
    "delete": "[Delete rows](../../guides/delete.md)",
    "explain": "[Watch and repair](../../operations.md)",
    "ingest": "[Ingest a database's log](../../guides/ingest.md), [Kafka](../../kafka.md)",
    "merge": "[Merge by key](../../guides/merge.md)",
    "overwrite": "[Overwrite rows](../../guides/overwrite.md)",
    "pack": "[Clusters](../../clusters.md)",
    "read": "[Read tables](../../guides/read.md)",
    "track": "[Keep a history](../../guides/history.md)",
    "truncate": "[Truncate a table](../../guides/truncate.md)",
    "update-rows": "[Update rows](../../guides/update.md)",
    "upsert": "[Upsert rows](../../guides/upsert.md)",
    "update": "[Incremental update](../../incremental-update.md)",
}


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
    parts = [f"# hive-mutate {name}\n"]
    if name in _GUIDES:
        parts += [f"A guide: {_GUIDES[name]}.\n"]
    parts += [_help(parser)]
    for below, subparser in _subparsers(parser).items():
        parts += [f"\n## {name} {below}\n", _help(subparser)]
    return "\n".join(parts)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _help(parser: argparse.ArgumentParser) -> str:
    """Of a kind or an action with a module of its own after its arguments are declared."""
    declare = getattr(parser, "declare", None)
    if declare is not None:
        declare()
    if parser.formatter_class is argparse.RawDescriptionHelpFormatter:
        parser.epilog = _narrowed(parser.epilog)
        for each in (parser, *parser._action_groups):
            each.description = _narrowed(each.description)
    parser.formatter_class = functools.partial(parser.formatter_class, width=COLUMNS)  # type: ignore[call-arg]
    return f"```text\n{parser.format_help().rstrip()}\n```\n"


def _narrowed(text: str | None) -> str | None:
    """Text of wider lines: paragraphs are filled anew, indented lines broken as in a shell."""
    if text is None:
        return None
    parts: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        if paragraph:
            parts.append(textwrap.fill(" ".join(paragraph), COLUMNS - 2, break_on_hyphens=False))
            paragraph = []
        parts.append(_broken(line))
    return "\n".join(parts)


def _broken(line: str) -> str:
    """A command is broken before its options; any other line stays, and must fit."""
    if len(line) <= COLUMNS:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    lines = [""]
    for part in re.split(r" (?=--)", line.strip()):
        if lines[-1] and len(indent) + len(lines[-1]) + len(part) + 3 > COLUMNS:
            lines.append(f"    {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(indent + each for each in lines)
