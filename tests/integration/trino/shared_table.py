"""A table that Hive, Trino and this library read and write; all of them must find the same rows."""

from __future__ import annotations

import datetime
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from judges.trino.trino import TrinoCatalog
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api import Hive, HiveTransaction, create_acid_table
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.verify.verify import VerifyReport, verify_table
from tests.integration.files.hive_values import random_value, read_back, shown

Row = tuple[Any, ...]
_numbers = itertools.count(1)


class AbortedError(Exception):
    """Raised to abort a transaction."""


@dataclass
class SharedTable:
    """A table and all that work on it.

    Attributes:
        columns: Hive types of the data columns; the first is ``id``.
        keys: those of the partition columns.
    """

    judge: HiveJudge
    trino: TrinoCatalog
    hive: Hive
    metastore: ThriftMetastoreClient
    name: str
    columns: Mapping[str, str]
    keys: Mapping[str, str]

    @property
    def types(self) -> dict[str, HiveType]:
        """The types of all columns."""
        return {name: parse_hive_type(kind) for name, kind in {**self.columns, **self.keys}.items()}

    @property
    def directory(self) -> Path:
        """The table's directory."""
        location = self.metastore.get_table(*self.name.split(".")).location
        return Path(location.removeprefix("file:"))

    def partitions(self) -> list[str]:
        """Names of the partitions, escaped; one '' without any."""
        return self.metastore.get_partition_names(*self.name.split(".")) if self.keys else [""]

    # -- changes -------------------------------------------------------------------------------------------
    def data(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Rows as the library takes them."""
        fields = [(name, arrow_type(kind, timestamp_unit="us")) for name, kind in self.types.items()]
        return pa.Table.from_pylist(
            [{name: row[name] for name, _ in fields} for row in rows], pa.schema(fields)
        )

    def random_data(self, seed: int, ids: Sequence[int]) -> pa.Table:
        """Rows with these ids and random values, in partitions ``a`` and ``b``, without early days."""
        rng = random.Random(seed)
        rows = []
        for n in ids:
            row = {
                name: _late(random_value(rng, kind, early_fractions=False))
                for name, kind in self.types.items()
            }
            rows.append(row | {"id": n} | dict.fromkeys(self.keys, "ab"[n % 2]))
        return self.data(rows)

    def begin(self) -> HiveTransaction:
        """A transaction of the library, which may create partitions."""
        return self.hive.transaction(self.name, create_partitions=bool(self.keys))

    def append(self, data: pa.Table) -> None:
        """Add rows by the library."""
        with self.begin() as tx:
            tx.table(self.name).append(data)

    def merge(self, data: pa.Table) -> None:
        """Upsert rows by the library."""
        with self.begin() as tx:
            tx.table(self.name).upsert(data, ["id"])

    def abort(self, data: pa.Table) -> None:
        """Add rows and delete all others in a transaction that ends aborted."""
        with pytest.raises(AbortedError), self.begin() as tx:
            tx.table(self.name).append(data)
            raise AbortedError

    def by_hive(self, text: str) -> None:
        """A statement of Hive; ``$T`` stands for the table."""
        settings = {"hive.exec.dynamic.partition.mode": "nonstrict"}
        self.judge.sql(text.replace("$T", self.name), settings=settings)

    def by_trino(self, text: str, **settings: str) -> list[Row]:
        """A statement of Trino; ``$T`` stands for the table."""
        return self.trino.sql(text.replace("$T", self.name), settings=settings)

    # -- compactions ---------------------------------------------------------------------------------------
    def compact(self, kind: str) -> None:
        """Compact all partitions by the library; before Hive 4 only ``major``."""
        for partition in self.partitions():
            compact_partition(
                self.metastore, self.name, partition, kind=kind, without_queue=self.judge.line == "3.1"
            )
        self.judge.clean(self.name)

    def compact_by_hive(self, kind: str) -> None:
        """Compact all partitions by Hive."""
        for partition in self.partitions():
            key, _, value = partition.partition("=")
            self.judge.compact(self.name, kind, partition=f"{key}='{value}'" if key else None)

    # -- readers -------------------------------------------------------------------------------------------
    def check(self, count: int | None = None, **settings: str) -> list[Row]:
        """Return the rows that Hive's two readers, Trino and this library agree on.

        Args:
            count: how many there must be; not compared if None.
            settings: session properties of Trino.
        """
        rows = self.rows_of_trino(**settings)
        found = sorted((row[1:] for row in rows), key=repr)
        assert found == self.rows_of_library()
        of_trino = [_without_signed_zero(row[: 1 + len(self.columns)]) for row in rows]
        of_hive = [_without_signed_zero(row) for row in self.rows_of_hive()]
        assert sorted(of_trino, key=repr) == sorted(of_hive, key=repr)
        assert count is None or len(rows) == count
        return found

    def rows_of_trino(self, **settings: str) -> list[Row]:
        """Trino's: partition, data columns, partition columns."""
        partition = '"$partition"' if self.keys else "''"
        names = ", ".join(f'"{name}"' for name in self.types)
        rows = self.by_trino(f"SELECT {partition}, {names} FROM $T", **settings)
        kinds = [*self.types.values()]
        return [(row[0], *map(plain, row[1:], kinds)) for row in rows]

    def rows_of_library(self) -> list[Row]:
        """The library's: data columns, partition columns."""
        with self.hive.snapshot(self.name) as snapshot:
            found = snapshot.table(self.name).scan([*self.types]).to_arrow()
        kinds = [*self.types.values()]
        return sorted([tuple(map(plain, row.values(), kinds)) for row in found.to_pylist()], key=repr)

    def rows_of_hive(self) -> list[Row]:
        """Hive's: partition, data columns."""
        kinds = [parse_hive_type(kind) for kind in self.columns.values()]
        rows = self.judge.table_rows(self.name, row_ids=False)
        return sorted([(row.partition, *map(_of_hive, row.values, kinds)) for row in rows], key=repr)

    def verify(self) -> VerifyReport:
        """What the library says of the files; the deletes of Trino are known to have another index."""
        report = verify_table(self.metastore, self.name)
        assert {each.rule_name for each in report.findings} <= {"key-index-of-deletes"}, report.findings
        return report


@dataclass
class Maker:
    """Makes tables in a database of a release."""

    judge: HiveJudge
    trino: TrinoCatalog
    hive: Hive
    metastore: ThriftMetastoreClient
    database: str

    def create(
        self,
        columns: Mapping[str, str],
        keys: Mapping[str, str] | None = None,
        *,
        buckets: int = 0,
        insert_only: bool = False,
    ) -> SharedTable:
        """Make a table by the library; 0 buckets for none, else by ``id``."""
        name = f"{self.database}.t{next(_numbers)}"
        clustered: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": buckets} if buckets else {}
        create_acid_table(
            self.metastore, name, _infos(columns), _infos(keys or {}), insert_only=insert_only, **clustered
        )
        return self.of(name, columns, keys or {})

    def of(self, name: str, columns: Mapping[str, str], keys: Mapping[str, str]) -> SharedTable:
        """A table that another one made."""
        return SharedTable(self.judge, self.trino, self.hive, self.metastore, name, columns, keys)


def _late(value: Any) -> Any:
    """A value, or a later one if it is of a day before the Gregorian calendar."""
    is_early = isinstance(value, datetime.date) and value.year < 1583
    return value.replace(year=value.year + 2000) if is_early else value


def _infos(columns: Mapping[str, str]) -> list[ColumnInfo]:
    return [ColumnInfo(name, kind) for name, kind in columns.items()]


def plain(value: Any, kind: HiveType, leaf: Callable[[Any, HiveType], Any] = shown) -> Any:
    """A value of Trino or of this library, in a form that is the same for equal values."""
    if value is None:
        return None
    match kind.kind:
        case "array":
            return [plain(each, kind.children[0], leaf) for each in value]
        case "map":
            return sorted(_pairs(value, kind, leaf))
        case "struct":
            fields = zip(kind.field_names, kind.children, strict=True)
            return [plain(value[name], child, leaf) for name, child in fields]
        case "timestamp" if isinstance(value, str):
            return value
    return leaf(value, kind)


def _pairs(value: Any, kind: HiveType, leaf: Callable[[Any, HiveType], Any]) -> Iterator[list[Any]]:
    for key, each in value.items() if isinstance(value, dict) else value:
        yield [str(plain(key, kind.children[0], leaf)), plain(each, kind.children[1], leaf)]


def _without_signed_zero(row: Row) -> Row:
    """Return a row with 0.0 in place of -0.0, which Hive does not always show as such."""
    return tuple("0.0" if value == "-0.0" else value for value in row)


def _of_hive(value: Any, kind: HiveType) -> Any:
    """A value of a HiveRow; nested ones are JSON."""
    is_nested = value is not None and bool(kind.children)
    return plain(json.loads(value) if is_nested else value, kind, read_back)
