"""The matrix of values from files: texts of CSV and values of JSON in columns of every type of Hive.

What is stored is what docs/guides/change-rows.md promises, or the file is refused with an error of ours that
names file and column, and nothing is written.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cli.engine_arguments import ApplyTask
from mutation_api.cli.local_engine import LocalCommands
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.hive.connect import connect
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.file_rules import RowColumns
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.support.text_matrix import (
    NESTED_TYPES,
    check_promise,
    promised_json,
    promised_text,
    random_json,
    random_text,
)
from tests.support.value_matrix import HIVE_TYPES, RefusedError

NAME = "default.texts"
ROWS = 2
CASES = 60
MANY_CASES = 1_500


def csv_field(rng: random.Random, text: str | None) -> str:
    """The text as a field, in quotes where they are needed or by chance."""
    if text is None:
        return ""
    needs_quotes = text == "" or any(letter in text for letter in ',"\r\n')
    return f'"{text.replace(chr(34), 2 * chr(34))}"' if needs_quotes or rng.random() < 0.2 else text


def csv_file(rng: random.Random, texts: list[str | None]) -> str:
    end = rng.choice(("\n", "\r\n"))
    rows = [f"insert,{number},{csv_field(rng, text)}" for number, text in enumerate(texts)]
    return rng.choice(("", "\ufeff")) + end.join(["operation,ID,v", *rows, ""])


def json_file(values: list[str]) -> str:
    return "".join(f'{{"v":{value}, "id":{at}, "operation":"insert"}}\n' for at, value in enumerate(values))


def stored(directory: Path, hive_type: str, file: Path, way: str) -> list[Any]:
    """The column after the file was applied, or merged."""
    metastore = InMemoryMetastore(directory, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", hive_type)]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive:
        if way == "apply":
            with (
                MutatorClientBuilder().metastore(metastore).add_sink_table(NAME).build() as client,
                client.new_transaction() as transaction,
            ):
                task = ApplyTask(NAME, Location.given(file), file.suffix[1:], "operation")
                LocalCommands().apply_file(transaction, task, verify_row_ids=False)
        else:
            with hive.transaction(NAME) as transaction:
                files = ArrowFiles(RowColumns(transaction._begun().table(NAME), keeps_unknown=True))
                merge = transaction.table(NAME).merge(files.read(Location.given(file)), on=["id"])
                merge.when_not_matched_insert_all(pc.field("source", "operation") == "insert").execute()
        with hive.snapshot(NAME) as view:
            rows = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
            values: list[Any] = rows["v"].to_pylist()
            return values


def promised_values(given: list[Any], kind: HiveType, form: str) -> list[Any] | None:
    """Of all rows; None if the file is refused."""
    try:
        return [(promised_text if form == "csv" else promised_json)(each, kind) for each in given]
    except RefusedError:
        return None


def check(directory: Path, seed: int, form: str) -> None:
    """One file for one column."""
    rng = random.Random(f"{form} {seed}")
    hive_type = rng.choice(HIVE_TYPES)
    is_nested = rng.random() < 0.4
    if is_nested:
        hive_type = rng.choice(NESTED_TYPES).format(hive_type)
    kind, way = parse_hive_type(hive_type), rng.choice(("apply", "merge"))
    given = [
        (random_text if form == "csv" and not is_nested else random_json)(rng, kind) for _ in range(ROWS)
    ]
    home = directory / f"{form}{seed}"
    home.mkdir()
    file = home / f"changes.{form}"
    content = csv_file(rng, given) if form == "csv" else json_file(given)
    file.write_text(content, encoding="utf-8", newline="")
    promised = promised_values(given, kind, form)
    what = f"seed {seed}: {way} of {given} to {hive_type}"
    check_promise(what, lambda: stored(home, hive_type, file, way), promised)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["csv", "json"])
def test_random_files(tmp_path: Path, form: str) -> None:
    """Some."""
    for seed in range(CASES):
        check(tmp_path, seed, form)


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("form", ["csv", "json"])
def test_many_random_files(tmp_path: Path, form: str, part: int) -> None:
    """The same of others."""
    for seed in range(part * MANY_CASES // 5, (part + 1) * MANY_CASES // 5):
        check(tmp_path, 1_000 + seed, form)
