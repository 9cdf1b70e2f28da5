"""The matrix of values from change logs: messages bring random values into columns of every type of Hive.

What is stored is what the tables of the formats promise, or the run is refused with an error of ours.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.ingest import ingest
from mutation_api.cdc.mappings import TableMapping
from mutation_api.cdc.messages.canal import CanalSource
from mutation_api.cdc.messages.debezium import DebeziumSource
from mutation_api.cdc.messages.maxwell import MaxwellSource
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.hive.connect import connect
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.write.local_plan import LocalOptions
from tests.support.message_matrix import FORMATS, message, promised_value, random_semantic, random_value
from tests.support.text_matrix import check_promise
from tests.support.value_matrix import HIVE_TYPES, RefusedError

NAME = "default.t"
CASES = 20
MANY_CASES = 1_000
SOURCES = {"maxwell": MaxwellSource, "canal": CanalSource, "debezium": DebeziumSource}


def stored(directory: Path, hive_type: str, form: str, messages: list[str]) -> list[Any]:
    """The column after the log was ingested."""
    metastore = InMemoryMetastore(directory / "warehouse", capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", hive_type)]
    create_acid_table(metastore, NAME, columns, clustered_by=["id"], num_buckets=1)
    log = directory / "log-1.json"
    log.write_text("".join(f"{each}\n" for each in messages), encoding="utf-8")
    mappings = [TableMapping("shop.t", NAME, ["id"])]
    ingest(metastore, mappings, SOURCES[form](str(log), "log"), local=LocalOptions())
    with connect(metastore) as hive, hive.snapshot(NAME) as view:
        rows = view.table(NAME).scan(timestamps=TimestampForm.TEXT).to_arrow().sort_by("id")
        values: list[Any] = rows["v"].to_pylist()
        return values


def check(directory: Path, seed: int, form: str) -> None:
    """One log for one column."""
    rng = random.Random(f"{form} {seed}")
    hive_type = rng.choice(HIVE_TYPES)
    kind = parse_hive_type(hive_type)
    semantic = random_semantic(rng, kind) if form == "debezium" else None
    given = [random_value(rng, form, kind, semantic) for _ in range(2)]
    try:
        promised: list[Any] | None = [promised_value(raw, form, kind, semantic) for raw in given]
    except RefusedError:
        promised = None
    home = directory / f"{form}{seed}"
    home.mkdir()
    what = f"seed {seed}: {given} to {hive_type}{'' if semantic is None else f' by {semantic.schema}'}"
    lines = [message(form, *each, semantic) for each in enumerate(given)]
    check_promise(what, lambda: stored(home, hive_type, form, lines), promised)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMATS)
def test_random_messages(tmp_path: Path, form: str) -> None:
    """Some."""
    for seed in range(CASES):
        check(tmp_path, seed, form)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("form", FORMATS)
def test_many_random_messages(tmp_path: Path, form: str, part: int) -> None:
    """The same of others."""
    for seed in range(part * MANY_CASES // 4, (part + 1) * MANY_CASES // 4):
        check(tmp_path, 1_000 + seed, form)
