"""Spark reads texts of CSV and JSON by the same rules: the same values, or both engines refuse them."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api.errors import MutationError
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.merge.arrow_change_files import ArrowFiles
from mutation_api.merge.file_rules import RowColumns
from mutation_api.merge.row_files import RowFiles
from mutation_api.spark.versions import collected
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn
from tests.support.text_matrix import FLAT_TYPES, NESTED_TYPES, random_json, random_text
from tests.support.value_matrix import HIVE_TYPES
from tests.unit.merge.files.test_change_files import TABLE
from tests.unit.merge.files.test_text_matrix import csv_field

pytestmark = pytest.mark.slow

FORMS = ("csv", "json")
COLUMNS = 12
REFUSED = 3


def random_column(rng: random.Random, form: str) -> tuple[str, list[str | None]]:
    """A Hive type, and three fields as they stand in a file."""
    hive_type = rng.choice(FLAT_TYPES if form == "csv" else HIVE_TYPES)
    if form == "json" and rng.random() < 0.4:
        hive_type = rng.choice(NESTED_TYPES).format(hive_type)
    kind = parse_hive_type(hive_type)
    if form == "json":
        return hive_type, [random_json(rng, kind) for _ in range(3)]
    return hive_type, [csv_field(rng, random_text(rng, kind)) for _ in range(3)]


def file_of(directory: Path, form: str, columns: list[tuple[str, list[str | None]]]) -> Path:
    """The columns c0, c1, …"""
    file = directory / f"c.{form}"
    names = [f"c{number}" for number in range(len(columns))]
    rows = zip(*(values for _, values in columns), strict=True)
    if form == "csv":
        lines = [",".join(["id", *names]), *(",".join(["1", *map(str, row)]) for row in rows)]
    else:
        fields = ([f'"{name}":{value}' for name, value in zip(names, row, strict=True)] for row in rows)
        lines = [f"{{{','.join(each)}}}" for each in fields]
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return file


def read(
    directory: Path, form: str, columns: list[tuple[str, list[str | None]]], spark: SparkSession | None
) -> str | None:
    """The rows; None if they are refused."""
    directory.mkdir(exist_ok=True)
    file = Location.given(file_of(directory, form, columns))
    fields = (AcidColumn("id", "int"), *(AcidColumn(f"c{n}", kind) for n, (kind, _) in enumerate(columns)))
    table = dataclasses.replace(TABLE, columns=fields, partition_keys=())
    try:
        if spark is None:
            found = ArrowFiles(RowColumns(table)).read(file).read_all()
        else:
            with translated_worker_errors("reading"):
                found = collected(RowFiles(spark, table).read(file))
    except MutationError:
        return None
    names = [f"c{number}" for number in range(len(columns))]
    return repr(pa.table([found[name] for name in names], names=names).to_pylist())


def check(directory: Path, spark: SparkSession, seed: int, form: str) -> None:
    """A file of columns that are read, and files of some that are not."""
    rng = random.Random(f"{form} {seed}")
    columns = [random_column(rng, form) for _ in range(4 * COLUMNS)]
    good = [each for each in columns if read(directory / "one", form, [each], None) is not None]
    bad = [each for each in columns if each not in good]
    wanted = read(directory / "good", form, good, None)
    assert wanted is not None
    assert read(directory / "good", form, good, spark) == wanted, f"seed {seed}: {good}"
    for each in bad[:REFUSED]:
        assert read(directory / "bad", form, [each], spark) is None, f"seed {seed}: {each}"


@pytest.mark.parametrize("form", FORMS)
def test_random_texts(tmp_path: Path, spark: SparkSession, form: str) -> None:
    """Some."""
    check(tmp_path, spark, 1, form)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(2, 14))
def test_many_random_texts(tmp_path: Path, spark: SparkSession, seed: int, form: str) -> None:
    """The same of others."""
    check(tmp_path, spark, seed, form)
