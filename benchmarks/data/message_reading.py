"""How a benchmark's log of messages is read and reduced: by this checkout or by an earlier one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.data.message_data import CANAL, COLUMNS, DEBEZIUM, DEBEZIUM_SCHEMA, MAXWELL, TABLE
from mutation_api.cdc import CanalSource, DebeziumSource, DebeziumValues, MaxwellSource, SourceTable
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

TARGET = AcidTable(
    "default",
    "orders",
    Location.given("/warehouse/orders"),
    tuple(AcidColumn(name, kind) for name, kind in COLUMNS),
    (),
    0,
    (),
    AcidVersion.V2_HIVE4,
)

Answer = Mapping[tuple[str, str], int]
"""How many keys have which first and last operation."""


def reduced(engine: Any, source: Any) -> Answer:
    """Read a log by one of the engines of ``ingest``, and reduce it to the last operation of each key."""
    given = [source, [SourceTable(TABLE, TARGET, ("id",))], {}]
    if len(inspect.signature(engine.read).parameters) > len(given):  # an earlier engine takes no more
        given.append(lambda _: 0)
    (log,) = engine.read(*given).tables
    with log.reduced(what="the log", strict=False) as found:
        return dict(found.counts.outcomes)


def source_of(name: str, folder: Path) -> DebeziumSource | MaxwellSource | CanalSource:
    """The source that reads the log of a format in this folder."""
    decimals = {f"{TABLE}.total": "org.apache.kafka.connect.data.Decimal(2)"}
    values = DebeziumValues(times="microseconds", column_types=decimals)
    match name:
        case value if value == DEBEZIUM:
            return DebeziumSource(folder, "erp", values=values)
        case value if value == DEBEZIUM_SCHEMA:
            return DebeziumSource(folder, "erp")
        case value if value == MAXWELL:
            return MaxwellSource(folder, "erp")
        case _:
            assert name == CANAL
            return CanalSource(folder, "erp")
