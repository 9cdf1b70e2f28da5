"""``hive-mutate verify``: check all files of a table, with or without a metastore.

Every file is read to its end. The command checks that each file is readable, that its ORC statistics and ACID
footer are correct, that events are sorted and unique, that each delete matches a row, that rows are in the
bucket that they hash to, that the metastore allocated the ids, and that row counts and column statistics are
correct if the metastore marks them as accurate.

Nothing is changed. A finding is either damage (a reader fails, or rows are lost, duplicated or wrong) or a
notice (harmless, such as the files of an aborted transaction; shown with --notices and --json).

The exit code is 0 if nothing is damaged, otherwise 1. Without a metastore, bucket columns are not known and
hashes are not compared.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

from mutation_api.cli.parsers import add_flag, describe, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    DIRECTORY_OPTIONS,
    add_directory_arguments,
    add_metastore_arguments,
    check_directory_usage,
    directory_from,
    metastore_from,
)
from mutation_api.cli.terminal import say, say_aside
from mutation_api.errors import ReadError
from mutation_api.format.printable import one_line
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.verify import VerifyProgress, VerifyReport, verify_table, verify_view

_PROGRESS_SECONDS = 5.0
_MEGABYTE = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("table", nargs="?", metavar="DB.TABLE", help="table of the metastore to check")
    add_flag(parser, "--notices", "also print notices, which are harmless")
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="number of files to read in parallel (default: the number of processors)",
    )
    add_flag(parser, "--json", "print the report as one JSON object")
    add_metastore_arguments(parser)
    add_directory_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print findings and a summary. Return 0 if nothing is damaged, otherwise 1."""
    check_directory_usage(arguments)
    progress = _Progress()
    try:
        with in_option_names({**DIRECTORY_OPTIONS, **option_names("threads")}):
            report = _report(arguments, progress)
    except OSError as error:
        raise ReadError(f"the table's directories cannot be read: {error}") from error
    if arguments.json:
        say(json.dumps(report.to_dict()))
    else:
        for line in _lines(report, notices=arguments.notices):
            say(one_line(line))
    return int(not report.is_sound)


def _report(arguments: argparse.Namespace, progress: _Progress) -> VerifyReport:
    if arguments.location is not None:
        return verify_view(directory_from(arguments), threads=arguments.threads, progress=progress)
    with metastore_from(arguments) as metastore:
        return verify_table(metastore, arguments.table, threads=arguments.threads, progress=progress)


class _Progress:
    """A listener that prints the progress to standard error every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: VerifyProgress) -> None:
        now = time.monotonic()
        if now - self._last < _PROGRESS_SECONDS:
            return
        self._last = now
        say_aside(
            f"{done.file_count:,} of {done.total_file_count:,} files, "
            f"{done.byte_count // _MEGABYTE:,} of {done.total_byte_count // _MEGABYTE:,} MiB"
        )


def _lines(report: VerifyReport, *, notices: bool) -> Iterator[str]:
    for finding in report.findings:
        if finding.is_damage or notices:
            yield from _finding_lines(finding)
    hidden = len(report.findings) - len(report.damages)
    rows = "rows unknown" if report.row_count is None else f"{report.row_count:,} rows"
    verdict = "sound" if report.is_sound else f"{len(report.damages)} DAMAGED"
    more = f", {hidden} notices" if hidden else ""
    partitions = f"{report.partition_count:,} partition{'' if report.partition_count == 1 else 's'}"
    size = f"{report.file_count:,} files, {report.byte_count:,} bytes, {rows}"
    yield f"{report.table}: {verdict}{more}; {partitions}, {size}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.rule.severity.value.upper()} {finding}"
    yield f"    rule: {finding.rule.meaning}; what to do: {finding.rule.advice}"
