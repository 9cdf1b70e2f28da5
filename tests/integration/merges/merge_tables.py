"""Tables for random merges on any line of Hive: made and filled by us and by Hive's SQL, read by Hive.

Rows here are dictionaries of Python values by column; the partition column is one of them.
"""

from __future__ import annotations

import datetime
import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from judges.hive.hive_judges import Hive23, Hive31, Hive41
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.format.event import bucket_ids
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.write.coordinator import MutatorCoordinator
from tests.integration.merges.merge_cases import Shape, random_rows
from tests.integration.merges.merge_model import DEFAULT_PARTITION, Row

DYNAMIC = {"hive.exec.dynamic.partition.mode": "nonstrict"}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A judge, and a database of its."""

    judge: Hive23 | Hive31 | Hive41
    metastore: MetastoreClient
    database: str

    @property
    def has_write_ids(self) -> bool:
        """Whether tables may do without buckets, and be insert-only."""
        return self.judge.line != "2.3"

    def flat(self, types: Mapping[str, str], layout: str = "legacy") -> Table:
        """A transactional table without partitions, in one bucket where it must have one.

        In the layout ``default`` Hive 2.3 has no MERGE that both inserts and updates. It also reads all
        tables of a statement in the layout of the one that it writes: a legacy one then has its deleted rows
        again.
        """
        bucket_columns = () if self.has_write_ids else (next(iter(types)),)
        return self.create(types, layout=layout, bucket_columns=bucket_columns)

    def of(self, shape: Shape) -> Table:
        """The table of a case, empty."""
        return self.create(
            shape.types,
            partition="p" if shape.partition_type else None,
            layout=shape.layout,
            bucket_columns=shape.bucket_columns,
            num_buckets=shape.num_buckets,
            bucketing_version=shape.bucketing_version,
            is_transactional=not shape.is_original,
        )

    def create(
        self,
        types: Mapping[str, str],
        *,
        partition: str | None = None,
        layout: str = "default",
        bucket_columns: Sequence[str] = (),
        num_buckets: int = 1,
        bucketing_version: int = 2,
        is_transactional: bool = True,
    ) -> Table:
        """Make a table over Thrift; of a plain one (not transactional) the files are called original."""
        parameters = {"transactional": "true" if is_transactional else "false"}
        if is_transactional and layout != "legacy":
            parameters["transactional_properties"] = layout
        if self.has_write_ids:
            parameters["bucketing_version"] = str(bucketing_version)
        name = f"m{next(_numbers)}"
        self.metastore.create_table(
            TableInfo(
                database=self.database,
                name=name,
                columns=tuple(ColumnInfo(n, t) for n, t in types.items() if n != partition),
                partition_keys=(ColumnInfo(partition, types[partition]),) if partition else (),
                num_buckets=num_buckets if bucket_columns else -1,
                bucket_columns=tuple(bucket_columns),
                parameters=parameters,
            )
        )
        return Table(self, f"{self.database}.{name}", dict(types), partition, layout)


@dataclass(frozen=True)
class Table:
    """A table whose rows are ``types``, partition column included."""

    place: Place
    full_name: str
    types: dict[str, str]
    partition: str | None
    layout: str

    @property
    def data_types(self) -> dict[str, str]:
        """Types of the columns that lie in files."""
        return {name: kind for name, kind in self.types.items() if name != self.partition}

    def client(self, *, create_partitions: bool = True) -> MutatorClient:
        """A client with the table as a sink."""
        builder = MutatorClientBuilder().metastore(self.place.judge.uri).lock_timeout_seconds(30)
        database, _, name = self.full_name.partition(".")
        return builder.add_sink_table(database, name, create_partitions=create_partitions).build()

    def sql(self, text: str, **settings: str) -> None:
        """A statement; ``$T`` stands for the table."""
        self.place.judge.sql(text.replace("$T", self.full_name), settings={**DYNAMIC, **settings})

    def partitions(self) -> list[str]:
        """Names of the partitions, escaped; one '' without any."""
        if self.partition is None:
            return [""]
        return list(self.place.metastore.get_partition_names(*self.full_name.split(".")))

    # -- changes -------------------------------------------------------------------------------------------
    def insert(self, rows: Iterable[Row]) -> None:
        """Insert rows by our writer."""
        rows = list(rows)
        if not rows:
            return
        with self.client() as client, client.new_transaction() as transaction:
            table = transaction.table(self.full_name)
            with MutatorCoordinator(table) as coordinator:
                for value in sorted(
                    {row[self.partition] if self.partition else None for row in rows}, key=str
                ):
                    here = [row for row in rows if not self.partition or row[self.partition] == value]
                    batch = arrow_table(here, self.data_types)
                    coordinator.insert([value] if self.partition else None, in_buckets(table, batch))
                transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())

    def insert_by_sql(self, rows: Sequence[Row]) -> None:
        """Let Hive insert the rows, from another table."""
        given = self.place.flat(self.types, "default" if self.layout == "default" else "legacy")
        given.insert(rows)
        into = "$T PARTITION (p)" if self.partition else "$T"
        self.sql(f"INSERT INTO TABLE {into} SELECT {', '.join(self.types)} FROM {given.full_name}")

    def change(self, rng: random.Random) -> None:
        """Update some of the rows and delete some by our writer."""
        with self.client() as client:
            found = self.found(client)
            with client.new_transaction() as transaction:
                table = transaction.table(self.full_name)
                with MutatorCoordinator(table) as coordinator:
                    for name, _, row_id, row in found:
                        values = [_partition_value(name)] if self.partition else None
                        if rng.random() < 0.2:
                            coordinator.delete(values, {"ROW__ID": row_id})
                        elif rng.random() < 0.3:
                            coordinator.update(values, {**row, "v": Decimal("9.99"), "ROW__ID": row_id})
                    transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())

    def found(self, client: MutatorClient) -> list[tuple[str, int, tuple[int, ...], Row]]:
        """(partition, bucket, ROW__ID, row) in the order of a writer."""
        found = []
        with client.open_snapshot(self.full_name) as snapshot:
            table, valid = snapshot.table(self.full_name), snapshot.valid_ids(self.full_name)
            names = [p.name for p in snapshot.partitions(self.full_name)] if self.partition else [""]
            for name in names:
                for split in plan_splits(
                    table, name, table.partition_location(name), valid, snapshot.valid_txn_list
                ):
                    for batch in read_split(table, split, valid):
                        for row in batch.to_pylist():
                            row_id = tuple(row.pop("ROW__ID").values())
                            encodes = table.version.encodes_buckets
                            bucket = int(bucket_ids(np.array([row_id[1]]))[0]) if encodes else row_id[1]
                            found.append((name, bucket, row_id, row))
        return sorted(found, key=lambda each: each[:3])

    def make_transactional(self) -> None:
        """What lies there becomes original files."""
        properties = "'transactional'='true'"
        if self.place.has_write_ids:
            properties += ", 'EXTERNAL'='FALSE'"
        elif self.layout != "legacy":
            properties += f", 'transactional_properties'='{self.layout}'"
        self.sql(f"ALTER TABLE $T SET TBLPROPERTIES ({properties})")

    def compact(self, kind: str, *, clean: bool) -> None:
        """Let Hive compact every partition that has something to compact; it may fail on others."""
        for name in self._compactable():
            key = f"p='{unquote(name.partition('=')[2])}'" if name else None
            self.place.judge.compact(self.full_name, kind, partition=key, clean=clean)

    def _compactable(self) -> list[str]:
        judge: Any = self.place.judge  # 2.3 is told of transactions alone
        with self.client() as client, client.open_snapshot(self.full_name) as snapshot:
            names = [p.name for p in snapshot.partitions(self.full_name)] if self.partition else [""]
            table = snapshot.table(self.full_name)
            ids: Any = snapshot.valid_ids(self.full_name)
            valid = [ids.to_text()]
            if self.place.has_write_ids:
                valid.append(snapshot.valid_txn_list.to_text())
            states = [judge.acid_state(table.partition_location(name).path, *valid) for name in names]
        return [name for name, state in zip(names, states, strict=True) if state.deltas]

    def step(self, what: str, rng: random.Random, shape: Shape) -> None:
        """One of :func:`~tests.integration.merges.merge_cases.random_steps`."""
        match what:
            case "insert":
                self.insert(random_rows(rng, shape, rng.randrange(5, 12)))
            case "sql insert":
                self.insert_by_sql(random_rows(rng, shape, rng.randrange(5, 12)))
            case "change":
                self.change(rng)
            case "sql update":
                self.sql("UPDATE $T SET v = 3.5 WHERE k2 = 'y'")
            case "sql delete":
                self.sql("DELETE FROM $T WHERE n = 1 OR n = 4")
            case _:
                # see test_hive_31_ruins_tables_without_buckets
                is_ruined = self.place.judge.line == "3.1" and not shape.num_buckets
                self.compact("major" if is_ruined else what, clean=rng.random() < 0.6)

    # -- reading -------------------------------------------------------------------------------------------
    def rows(self, reader: str = "row") -> list[Row]:
        """The rows as Hive reads them: ``row``, ``vector``, or ``both``, which must agree."""
        kinds = self.data_types
        found = []
        for line in self.place.judge.table_rows(self.full_name, row_ids=False, reader=reader):
            values = zip(kinds.items(), line.values, strict=True)
            row = {name: value_of(value, kind) for (name, kind), value in values}
            if self.partition:
                row[self.partition] = value_of(_partition_value(line.partition), self.types[self.partition])
            found.append({name: row[name] for name in self.types})
        return found


def _partition_value(name: str) -> str | None:
    text = unquote(name.partition("=")[2])
    return None if text == DEFAULT_PARTITION else text


def in_buckets(table: AcidTable, batch: pa.Table) -> pa.Table:
    """The batch in the order of its buckets."""
    if not table.is_bucketed:
        return batch
    order = np.argsort(BucketIdResolver(table).resolve(batch).to_numpy(), kind="stable")
    return batch.take(pa.array(order))


def arrow_table(rows: Sequence[Row], types: Mapping[str, str]) -> pa.Table:
    """Rows as columns of the Hive types' Arrow types."""
    schema = pa.schema(
        [(name, arrow_type(parse_hive_type(kind), timestamp_unit="us")) for name, kind in types.items()]
    )
    return pa.Table.from_pylist([{name: row[name] for name in types} for row in rows], schema)


def value_of(found: Any, kind: str) -> Any:
    """A value of the judge's notation."""
    if found is None:
        return None
    if kind.startswith("decimal"):
        return Decimal(found)
    if kind == "date":
        return datetime.date.fromisoformat(found)
    if kind == "int":
        return int(found)
    return json.loads(found) if "<" in kind else found


def in_order(rows: Iterable[Row]) -> list[str]:
    """Rows as texts that are equal for equal rows, sorted."""
    return sorted(repr({name: _plain(value) for name, value in row.items()}) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case Decimal():
            return f"{value.normalize():f}" if value else "0"
        case dict():
            return {name: _plain(each) for name, each in sorted(value.items())}
        case list():
            return [_plain(each) for each in value]
        case tuple():
            return _plain(dict(value))
    return value
