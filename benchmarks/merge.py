"""Merge a change set into a table by key: ours, delta-rs, pyiceberg's upsert and Hive's SQL MERGE.

    python -m benchmarks merge                              # 10,000,000 rows, 1 % of the keys
    python -m benchmarks merge --quick                      # 1,000,000 rows; Hive checks the result
    python -m benchmarks merge --changed 0.01,1,10 --rows 1000000,10000000,50000000 --save

Half of a change set are updates, a fifth deletes, the rest inserts, in random order on random keys. The
table has 8 buckets by the key; once more, by another column. All contestants start with the same rows, and
each round brings a new change set, the same for all, to the tables as the round before left them. The first
five rounds are not measured: a JVM compiles that long, and a session that merges all day is warm.
The times of the cold ones are printed as they run. Commits are measured, and so is reading the change set
from its Parquet file. In the end the tables of all are read back: number of rows, sum
of keys and checksums of every column must agree.

Contestants that do not scale (pyiceberg, Hive) merge 2,000 rows, once and cold, into at most 1,000,000; ours
does the same then.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.data.merge_data import CHECKSUMS, COLUMNS, ChangeSets
from benchmarks.measuring.arguments import Rounds, integers, settings_from
from benchmarks.measuring.measure import (
    Contestant,
    Result,
    alternate,
    as_figures,
    compared,
    machine,
    tell,
    versions,
)
from benchmarks.merging.merge_report import save_results, show_case
from benchmarks.merging.merge_stage import HIVE, OURS_KINDS, Content, Stage, checksums
from benchmarks.merging.merge_tables import linked_copy
from judges.hive.hive_judges import Hive23
from mutation_api import Hive, Transaction, connect, merge_into, read_table

HELP = "merge change sets by key, in turn with others"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
CHANGED_DEFAULT = 1.0
ROUNDS = Rounds(3, warm_up=5)
SMALL_CHANGES = 2_000
SMALL_ROWS_LIMIT = 1_000_000
RESULTS = Path(__file__).parent / "results" / "merge.json"
VERSIONS = set(versions("pyspark", "pyarrow"))
"""Of all that took part; peers add theirs."""


@dataclass(frozen=True)
class Ours:
    """How one of ours merges: the bucketing column of its table, ``write_unchanged``, and without Spark?"""

    bucket_column: str = "id"
    write_unchanged: bool = False
    is_local: bool = False


OURS = {
    "ours": Ours(),
    "ours-local": Ours(is_local=True),
    "ours-write-unchanged": Ours(write_unchanged=True),
    "ours-other-bucket": Ours(bucket_column="acct"),
    "ours-local-other-bucket": Ours(bucket_column="acct", is_local=True),
}

SMALL_OURS = ("ours", "ours-local")
"""Those beside contestants that do not scale."""

DELTA, DELTA_SPARK, ICEBERG = "delta-rs", "delta-spark", "pyiceberg"
CONTESTANTS = (*OURS, DELTA, DELTA_SPARK, ICEBERG, HIVE)

HIVE_MERGE = """MERGE INTO default.{table} AS t USING default.{source} AS s ON t.id = s.id
WHEN MATCHED AND s.op = 'D' THEN DELETE
WHEN MATCHED THEN UPDATE SET acct = s.acct, name = s.name, amount = s.amount, quantity = s.quantity
WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.acct, s.name, s.amount, s.quantity)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--rows", type=integers, default=(ROWS_DEFAULT,), help="rows of the table, or several with commas"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"a table of {QUICK_ROWS:,} rows; Hive judges ours"
    )
    parser.add_argument(
        "--changed", type=_numbers, default=(CHANGED_DEFAULT,), help="percent of the keys, or several"
    )
    ROUNDS.add_argument(parser)
    parser.add_argument(
        "--contestants", type=_names, default=CONTESTANTS, help=f"contestants: {', '.join(CONTESTANTS)}"
    )
    parser.add_argument("--work", type=Path, help="folder that keeps prepared tables (default: thrown away)")
    parser.add_argument(
        "--spark",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark; may be repeated",
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all tables of each case end up with the same content."""
    wanted = (QUICK_ROWS,) if arguments.quick else arguments.rows
    settings = settings_from(arguments.spark)
    repeat, warm_up = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    small = [name for name in (ICEBERG, HIVE) if name in arguments.contestants]
    small_rows = min(SMALL_ROWS_LIMIT, *wanted)
    cases: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        for rows in sorted({*wanted, *((small_rows,) if small else ())}):
            with Stage.opened(work.resolve(), rows, settings) as stage:
                for percent in arguments.changed if rows in wanted else ():
                    label = f"{rows:,} rows, {percent:g} % changed"
                    changes = stage.change_sets(label, round(rows * percent / 100), warm_up + repeat)
                    cases.append(
                        run_case(
                            stage, label, changes, arguments.contestants, warm_up, is_judged=arguments.quick
                        )
                    )
                    show_case(cases[-1])
                if small and rows == small_rows:
                    cases.append(run_small_case(stage, small, warm_up))
                    show_case(cases[-1])
    if arguments.save:
        save_results(cases, RESULTS, versions=", ".join(VERSIONS), machine=machine())
    return 0 if all(case["is_equal"] for case in cases) else 1


@dataclass(frozen=True)
class Entry:
    """A contestant, and how to read its table."""

    contestant: Contestant
    content: Callable[[], Content]
    table: str | None = None
    """Its name, if it is a Hive table."""


def run_case(
    stage: Stage, label: str, changes: ChangeSets, names: Sequence[str], warm_up: int, *, is_judged: bool
) -> dict[str, Any]:
    """Measure ours and Delta's in turn, and compare what their tables hold in the end."""
    tell(label)
    numbers = range(changes.rounds)
    with contextlib.ExitStack() as stack:
        entries = [ours_entry(stage, stack, name, changes) for name in OURS if name in names]
        for name, module in ((DELTA, "delta"), (DELTA_SPARK, "delta_spark")):
            if name in names:
                entries.append(delta_entry(stage, stack, name, module, changes))
        contestants = [entry.contestant for entry in entries]
        rounds = changes.rounds - warm_up
        results = alternate(contestants, rounds, stage.watch(), warm_up=warm_up, tell=tell)
        expected = dict.fromkeys((entry.contestant.name for entry in entries), changes.expected(numbers))
        return outcome(stage, label, changes, entries, results, expected, is_judged)


def run_small_case(stage: Stage, names: Sequence[str], warm_up: int) -> dict[str, Any]:
    """Measure once, on few changes, those that do not scale, and ours beside them."""
    label = f"{stage.rows:,} rows, {SMALL_CHANGES:,} changes, once"
    tell(label)
    changes = stage.change_sets(label, SMALL_CHANGES, 1 + warm_up)
    with contextlib.ExitStack() as stack:
        for ours in SMALL_OURS:
            warm = ours_entry(stage, stack, ours, changes).contestant  # on a separate table
            for number in range(1, 1 + warm_up):
                warm.run(number)
        entries = [ours_entry(stage, stack, ours, changes) for ours in SMALL_OURS]
        if ICEBERG in names:
            entries.append(iceberg_entry(stage, stack, changes))
        if HIVE in names:
            entries.append(hive_entry(stage, stack, changes))
        contestants = [entry.contestant for entry in entries]
        results = alternate(contestants, 1, stage.watch(), warm_up=0, tell=tell)
        expected = {
            entry.contestant.name: changes.expected((0,), deletes=entry.contestant.name != ICEBERG)
            for entry in entries
        }
        return outcome(stage, label, changes, entries, results, expected, is_judged=False)


def outcome(
    stage: Stage,
    label: str,
    changes: ChangeSets,
    entries: Sequence[Entry],
    results: Sequence[Result],
    expected: Mapping[str, tuple[int, int]],
    is_judged: bool,
) -> dict[str, Any]:
    """Read the tables back, and put everything together for JSON."""
    done = [entry for entry, result in zip(entries, results, strict=True) if not result.failure]
    contents = {entry.contestant.name: entry.content() for entry in done}
    judged = {entry.contestant.name: str(entry.table) for entry in done if entry.table and is_judged}
    disagreeing = [name for name in judged if hive_content(stage.hive(), judged[name]) != contents[name]]
    ours_failed = [result.name for result in results if result.name in OURS and result.failure]
    updates, deletes, inserts = changes.counts
    by_name = {result.name: result for result in results if result.usages}
    return {
        "case": label,
        "rows": stage.rows,
        "updates": updates,
        "deletes": deletes,
        "inserts": inserts,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {
            f"{mine} / {peer}": compared(by_name[mine], by_name[peer])
            for mine in OURS
            for peer in (DELTA, DELTA_SPARK, ICEBERG, HIVE)
            if mine in by_name and peer in by_name
        },
        "spark_settings": dict(stage.settings),
        "is_equal": are_right(contents, expected) and not disagreeing and not ours_failed,
        "hive_agrees": not disagreeing if judged else None,
        "contents": {name: list(content) for name, content in contents.items()},
    }


def ours_entry(stage: Stage, stack: contextlib.ExitStack, name: str, changes: ChangeSets) -> Entry:
    """Ours, on a new table."""
    ours = OURS[name]
    table = f"t{len(stage.tables.names)}"
    folder = stage.tables.create(stage.spark, table, ours.bucket_column)
    client = stack.enter_context(stage.tables.client(table))

    hive = stack.enter_context(connect(stage.metastore.uri)) if ours.is_local else None

    def merge(number: int) -> None:
        if hive is not None:
            merge_locally(hive, table, changes.path(number))
            return
        with client.new_transaction() as transaction:
            merge_ours(transaction, stage.spark, table, changes.path(number), ours.write_unchanged)

    def content() -> Content:
        with client.new_transaction() as transaction:
            return checksums(read_table(transaction, f"default.{table}", spark=stage.spark))

    return Entry(Contestant(name, merge, OURS_KINDS, folder), content, table)


def merge_locally(hive: Hive, table: str, changes: Path) -> None:
    """The merge as a user without Spark writes it."""
    with hive.transaction(f"default.{table}") as transaction:
        (
            transaction.table(f"default.{table}")
            .merge(pq.read_table(changes), on=["id"])
            .when_matched_delete(pc.field("source", "op") == "D")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )


def merge_ours(
    transaction: Transaction, spark: SparkSession, table: str, changes: Path, write_unchanged: bool
) -> None:
    """The merge as a user writes it."""
    (
        merge_into(
            transaction,
            f"default.{table}",
            source=spark.read.parquet(str(changes)),
            on=["id"],
            write_unchanged=write_unchanged,
        )
        .whenMatched("source.op = 'D'")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched()
        .insertAll()
        .execute()
    )


def delta_entry(
    stage: Stage, stack: contextlib.ExitStack, name: str, module: str, changes: ChangeSets
) -> Entry:
    """delta-rs or delta-spark, on a new table that the same one wrote; or its failure to start."""
    peer = stage.peer(module, name, stack)
    kept, folder = stage.prepared / module, stage.new_folder(module)
    try:
        if kept.exists():
            linked_copy(kept, folder)
        else:
            peer.call("load", str(folder), stage.base)
            linked_copy(folder, kept)
        VERSIONS.add(peer.call("version"))
    except (ImportError, RuntimeError) as error:
        return absent(name, error, folder)

    def merge(number: int) -> None:
        peer.call("merge", str(folder), str(changes.path(number)))

    def content() -> Content:
        return checksums(stage.spark.read.parquet(*peer.call("files", str(folder))))

    return Entry(Contestant(name, merge, (name,), folder), content)


def absent(name: str, error: Exception, folder: Path) -> Entry:
    """A contestant that cannot take part; its turn raises the reason."""

    def fail(number: int) -> None:
        raise error

    return Entry(Contestant(name, fail, (name,), folder), tuple)


def iceberg_entry(stage: Stage, stack: contextlib.ExitStack, changes: ChangeSets) -> Entry:
    """pyiceberg, on a new table."""
    peer = stage.peer("iceberg", ICEBERG, stack)
    folder = stage.new_folder("iceberg")
    peer.call("load", str(folder), stage.base)

    def upsert(number: int) -> None:
        peer.call("upsert", str(folder), str(changes.path(number)))

    def content() -> Content:
        return checksums(stage.spark.read.parquet(*peer.call("files", str(folder))))

    VERSIONS.add(peer.call("version"))
    return Entry(Contestant(ICEBERG, upsert, (ICEBERG,), folder), content)


def hive_entry(stage: Stage, stack: contextlib.ExitStack, changes: ChangeSets) -> Entry:
    """Hive's SQL on a new table, with the change set as an external table.

    The table is in the legacy layout: in ours, Hive 2.3 refuses a MERGE of updates and inserts.
    """
    hive = stage.hive()
    table = f"t{len(stage.tables.names)}"
    folder = stage.tables.create(stage.spark, table, "id", layout="legacy")

    def merge(number: int) -> None:
        source = stage.folder / f"hive-changes-{number}"
        source.mkdir()
        os.link(changes.path(number), source / "changes.parquet")
        hive.sql(
            f"CREATE EXTERNAL TABLE changes_{number} (op string, {COLUMNS}) STORED AS PARQUET "
            f"LOCATION '{source.as_uri()}'"
        )
        hive.sql(HIVE_MERGE.format(table=table, source=f"changes_{number}"))

    VERSIONS.add(hive.description)
    client = stack.enter_context(stage.tables.client(table))

    def content() -> Content:
        with client.new_transaction() as transaction:
            return checksums(read_table(transaction, f"default.{table}", spark=stage.spark))

    return Entry(Contestant(HIVE, merge, (HIVE, "metastore"), folder), content, table)


def are_right(contents: Mapping[str, Content], expected: Mapping[str, tuple[int, int]]) -> bool:
    """Whether all have the expected rows and keys, and those that expect the same have the same."""
    found = {(expected[name], content) for name, content in contents.items()}
    return all(content[:2] == rows for rows, content in found) and len(found) == len(dict(found))


def hive_content(hive: Hive23, table: str) -> Content:
    """The same, as Hive reads it."""
    settings = {"hive.vectorized.execution.enabled": "false"}
    (row,) = hive.sql(f"SELECT {CHECKSUMS} FROM default.{table}", settings=settings)
    return tuple(map(int, row))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    unknown = sorted(set(names) - set(CONTESTANTS))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(CONTESTANTS)}")
    return names
