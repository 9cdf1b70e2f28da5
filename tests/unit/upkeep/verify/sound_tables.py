"""Sound tables of every layout, small enough that a test can damage a copy of one in any way it likes."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.format.event import ACID_STATS, ACID_VERSION, KEY_INDEX, bucket_property, event_schema
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.write.event_writer import append_user_metadata
from mutation_api.read.directory_scan import open_directory
from mutation_api.read.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.table.row_type import parse_columns
from tests.support.acid_files import ROW_TYPE, Event

NUM_BUCKETS = 2
NEWEST_ID = 5
ABORTED_ID = 4
NEWEST_TXN = 50
NO_OPEN = 9223372036854775807
LAYOUTS = (AcidVersion.V1_LEGACY, AcidVersion.V1_SPLIT, AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4)

Metadata = Mapping[str, bytes]


def view_of(root: Path, version: AcidVersion) -> TableView:
    """A view of one, with its buckets, as the metastore would describe it."""
    has_write_ids = version.uses_write_ids
    txns = ValidTxnList(NEWEST_TXN, (45,), aborted=frozenset([45]))
    ids = ValidTxnList(NEWEST_ID, (ABORTED_ID,), aborted=frozenset([ABORTED_ID]))
    write_ids = ValidWriteIdList(NEWEST_ID, (ABORTED_ID,), aborted=frozenset([ABORTED_ID]), table="d.t")
    view = open_directory(
        root,
        "id bigint, msg string",
        acid_version="2" if has_write_ids else "1",
        transactional_properties="default" if version.splits_updates else "legacy",
        valid_txns=txns if has_write_ids else ids,
        valid_write_ids=write_ids if has_write_ids else None,
        num_buckets=NUM_BUCKETS,
    )
    table = dataclasses.replace(
        view.table,
        bucket_columns=("id",),
        bucketing_version=2 if has_write_ids else 1,
        version=version,
    )
    return dataclasses.replace(view, table=table)


def write_file(
    path: Path,
    version: AcidVersion,
    events: Sequence[Event],
    *,
    metadata: Callable[[dict[str, bytes]], Metadata] = dict,
    change: Callable[[pa.Table], pa.Table] = lambda table: table,
    stripe_rows: int = 0,
    compression: str = "zlib",
    bloom_filters: Sequence[int] = (),
) -> None:
    """Write an ACID file as Hive expects it, unless ``metadata`` or ``change`` make something else of it.

    Args:
        path: the file; an existing one is replaced.
        version: decides the entries of the footer.
        events: its events.
        metadata: what becomes of the footer's entries.
        change: what becomes of the columns.
        stripe_rows: rows of a stripe; 0: one stripe.
        compression: codec.
        bloom_filters: numbers of columns with Bloom filters.
    """
    columns = list(zip(*events, strict=True)) if events else [()] * 6
    schema = event_schema(ROW_TYPE)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    table = change(pa.Table.from_arrays(arrays, schema=schema))
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.orc.ORCWriter(
        str(path),
        compression=compression,
        stripe_size=1 if stripe_rows else 64 << 20,
        batch_size=stripe_rows or 1024,
        dictionary_key_size_threshold=0,
        bloom_filter_columns=list(bloom_filters),
    ) as writer:
        step = stripe_rows or max(len(table), 1)
        for start in range(0, max(len(table), 1), step):
            writer.write(table.slice(start, step))
    end = path.read_bytes()
    tail = parse_tail(end)
    ends, last = [], 0
    for stripe in tail.stripes:
        last += stripe.row_count
        ends.append(last - 1)
    counts = [sum(event[0] == code for event in events) for code in range(3)]
    entries = {
        KEY_INDEX: "".join("{},{},{};".format(*events[at][1:4]) for at in ends).encode(),
        ACID_STATS: ",".join(map(str, counts)).encode(),
    }
    if version.uses_write_ids:
        entries[ACID_VERSION] = b"2"
    path.write_bytes(append_user_metadata(end, metadata(entries), tail, mark_proleptic=version.is_hive_4))


def directory_version(directory: Path) -> None:
    """The file that Hive 3 and later put into each directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "_orc_acid_version").write_bytes(b"2")


class SoundTable:
    """100 rows of id 1, the tens updated and the fives deleted by id 2, 20 rows more by id 3.

    Id 4 was aborted and left a directory. Names and statements are those of the layout's Hive.
    """

    def __init__(self, root: Path, version: AcidVersion) -> None:
        self.root = root
        self.version = version
        self.row_ids: dict[int, tuple[int, int, int]] = {}
        self.suffix = "_0" if version.is_hive_4 else ""
        self._buckets = self._bucket_of(range(1000))
        self.insert(1, range(100))
        self._change()
        self.insert(3, range(100, 120))
        self.insert(ABORTED_ID, range(200, 210))
        if not version.uses_write_ids:
            (root / "_orc_acid_version").write_bytes(b"\0\0\0\0")

    def copy(self, root: Path) -> SoundTable:
        """The same table elsewhere, to be damaged."""
        other = copy.copy(self)
        other.root, other.row_ids = root, dict(self.row_ids)
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return other

    @property
    def row_count(self) -> int:
        """Rows that a reader sees."""
        return 110

    def delta(self, id: int, statement: int = 0, *, is_delete: bool = False) -> Path:
        """Directory of one id and statement."""
        return self.root / f"{'delete_' if is_delete else ''}delta_{id:07d}_{id:07d}_{statement:04d}"

    def file(self, id: int, bucket: int, statement: int = 0, *, is_delete: bool = False) -> Path:
        """One of its files."""
        return self.delta(id, statement, is_delete=is_delete) / f"bucket_{bucket:05d}{self.suffix}"

    def write(self, path: Path, events: Sequence[Event], **how: Any) -> None:
        """Write a file and what belongs into its directory."""
        write_file(path, self.version, events, **how)
        if self.version.uses_write_ids:
            directory_version(path.parent)

    def insert(self, id: int, numbers: Sequence[int], statement: int = 0) -> None:
        """Insert rows."""
        for bucket in range(NUM_BUCKETS):
            self.write(self.file(id, bucket, statement), self.inserts(id, bucket, numbers, statement))

    def inserts(self, id: int, bucket: int, numbers: Sequence[int], statement: int = 0) -> list[Event]:
        """Insert events of the rows that belong into a bucket."""
        field = self.field(bucket, statement)
        mine = [n for n in numbers if self._buckets[n] == bucket]
        self.row_ids.update({n: (id, field, at) for at, n in enumerate(mine)})
        return [(0, id, field, at, id, {"id": n, "msg": f"row {n}"}) for at, n in enumerate(mine)]

    def deletes(self, id: int, numbers: Sequence[int]) -> list[Event]:
        """Delete events, by ROW__ID."""
        return [(2, *row_id, id, None) for row_id in sorted(self.row_ids[n] for n in numbers)]

    def updates(self, id: int, numbers: Sequence[int]) -> list[Event]:
        """Update events of a legacy table."""
        return [(1, *self.row_ids[n], id, {"id": n, "msg": f"new {n}"}) for n in numbers]

    def field(self, bucket: int, statement: int = 0) -> int:
        """The bucket field of a ROW__ID."""
        return bucket_property(bucket, statement) if self.version.encodes_buckets else bucket

    def of_bucket(self, bucket: int, numbers: Sequence[int]) -> list[int]:
        """Those numbers whose rows lie in a bucket."""
        return [n for n in numbers if self._buckets[n] == bucket]

    def _change(self) -> None:
        updated, deleted = range(0, 100, 10), range(5, 100, 10)
        for bucket in range(NUM_BUCKETS):
            mine = self.of_bucket(bucket, updated), self.of_bucket(bucket, deleted)
            if not self.version.splits_updates:
                events = sorted([*self.updates(2, mine[0]), *self.deletes(2, mine[1])], key=lambda e: e[1:4])
                self.write(self.file(2, bucket), events)
                continue
            deletes = self.deletes(2, [*mine[0], *mine[1]])
            self.write(self.file(2, bucket, is_delete=True), deletes)
            statement = 1 if self.version.is_hive_4 else 0
            self.write(self.file(2, bucket, statement), self.inserts(2, bucket, mine[0], statement))

    def _bucket_of(self, numbers: Sequence[int]) -> list[int]:
        table = AcidTable(
            database="d",
            name="t",
            location=Location.given(self.root),
            columns=parse_columns("id bigint, msg string"),
            partition_keys=(),
            num_buckets=NUM_BUCKETS,
            bucket_columns=("id",),
            version=self.version,
            bucketing_version=2 if self.version.uses_write_ids else 1,
        )
        batch = pa.record_batch([pa.array(list(numbers), pa.int64())], names=["id"])
        return [int(n) for n in BucketIdResolver(table).resolve(batch)]
