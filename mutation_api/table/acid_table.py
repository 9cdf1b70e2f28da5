"""AcidTable: the small, frozen descriptor of one table that the driver passes to the workers.

For sending it, it is converted to a string: in ``AcidTable:1:<payload>:<checksum>`` the payload is JSON,
deflated, in URL-safe base64, and the checksum is its CRC-32 in hexadecimal. The string is ASCII without
blanks, line ends, quotes or ``$``, so it can be a Spark configuration value or an environment variable.
Hive's own ``AcidTableV1:`` strings hold a Java object and cannot be read.

:class:`WriterOptions` are user settings for the files that a job writes. They travel from the driver to the
tasks. :class:`SnapshotView` is what readers need from the object that holds a snapshot of tables.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from metastore_client.model import PartitionInfo
from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import ConfigurationError, TransactionStateError
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location


class TableRole(enum.Enum):
    """The role of a table in a transaction: what the transaction may do with it."""

    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True)
class AcidColumn:
    """A column: its name in lower case, its Hive type, and the constraints that Hive enforces on it.

    ``default`` is the SQL expression for rows that lack the column; '' means NULL.
    """

    name: str
    type: str
    not_null: bool = False
    default: str = ""


@dataclass(frozen=True)
class BloomFilters:
    """The columns of which each row group of a file gets a Bloom filter.

    Attributes:
        columns: names of columns.
        fpp: the probability that a filter does not exclude a missing value. The default is that of Hive 3.
    """

    columns: tuple[str, ...] = ()
    fpp: float = 0.05


NO_BLOOM_FILTERS = BloomFilters()


@dataclass(frozen=True)
class CheckConstraint:
    """A condition in Hive's SQL that must not be false for any row."""

    name: str
    condition: str


@dataclass(frozen=True)
class AcidTable:
    """Exactly the information that a worker needs to read or write one table.

    ``columns`` are the data columns in table order. ``bucket_columns`` are in CLUSTERED BY order. ``txn_id``
    is None until :meth:`bind`, which also sets ``write_id`` if the version uses write ids. Only a bound sink
    can be written to.

    The next three mappings contain only exceptions. ``partition_spellings`` maps a canonical partition name
    to the name of an existing partition that spells the same values differently (``hr=1`` -> ``hr=01``).
    ``partition_locations`` maps names to the location of partitions outside their default directory.
    ``ambiguous_partitions`` maps a canonical name to the names of all partitions that have its values, if
    there are several. These can be read, but not written to.

    ``null_partition_text`` is the server's name of the partition of NULL. ``goes_by_position`` is the setting
    ``orc.force.positional.evolution`` that applies to the table; None if it is not set.
    ``prints_shortest_numbers`` is True if the table's Hive runs on Java 19 or later
    (``types.java_float_text``). ``was_altered`` is True if Hive's ALTER TABLE, which moves no rows, may have
    changed their bucketing. ``user`` is the value of ``current_user()`` in defaults; '' if the table has no
    such default. Files with rows get ``bloom_filters``.

    ``time_zone`` is the time zone of Hive's own processes. The v1 hash of timestamp bucket columns depends on
    it. ``checks`` are the CHECK constraints of columns and table that Hive enforces.
    """

    database: str
    name: str
    location: Location
    columns: tuple[AcidColumn, ...]
    partition_keys: tuple[AcidColumn, ...]
    num_buckets: int
    bucket_columns: tuple[str, ...]
    version: AcidVersion
    bucketing_version: int = 1
    role: TableRole = TableRole.SINK
    create_partitions: bool = False
    txn_id: int | None = None
    write_id: int | None = None
    statement_id: int = 0
    compression: str = "zlib"
    partition_spellings: Mapping[str, str] = field(default_factory=dict)
    partition_locations: Mapping[str, Location] = field(default_factory=dict)
    ambiguous_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    null_partition_text: str = DEFAULT_PARTITION_NAME
    was_altered: bool = False
    time_zone: str | None = None
    checks: tuple[CheckConstraint, ...] = ()
    goes_by_position: bool | None = None
    prints_shortest_numbers: bool = False
    user: str = ""
    bloom_filters: BloomFilters = NO_BLOOM_FILTERS

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the data columns."""
        return tuple(c.name for c in self.columns)

    @property
    def all_columns(self) -> tuple[AcidColumn, ...]:
        """The data columns, followed by the partition columns."""
        return (*self.columns, *self.partition_keys)

    @property
    def partition_key_names(self) -> tuple[str, ...]:
        """The names of the partition columns."""
        return tuple(c.name for c in self.partition_keys)

    @property
    def is_bucketed(self) -> bool:
        """True if the table is CLUSTERED BY."""
        return bool(self.bucket_columns)

    @property
    def placing_columns(self) -> frozenset[str]:
        """The partition and bucket columns. If their values change, the row must move."""
        return frozenset((*self.partition_key_names, *self.bucket_columns))

    @property
    def bucket_limit(self) -> int:
        """The exclusive upper limit of bucket ids.

        If the table is not bucketed, this is the number of buckets that a ROW__ID can hold. The same applies
        if the table may once have had more buckets; only Hive 2 ignores files of other buckets.
        """
        has_others = self.was_altered and self.version.uses_write_ids
        return self.num_buckets if self.is_bucketed and not has_others else MAX_BUCKETS

    @property
    def matches_columns_by_position(self) -> bool:
        """True if a file's columns are matched with the table's by position, False if by name."""
        asked = self.goes_by_position
        return self.version.matches_columns_by_position if asked is None else asked

    @property
    def keeps_misplaced_rows(self) -> bool:
        """True if rows may lie in a bucket other than that of their hash. An update leaves them there."""
        return self.was_altered or self.version.keeps_misplaced_rows

    def bind(self, txn_id: int, write_id: int | None = None, statement_id: int = 0) -> AcidTable:
        """Return a copy that can be written to by a statement of transaction ``txn_id``.

        In v2 it writes under ``write_id``. Statements number the change sets of a table, from 0.
        """
        return dataclasses.replace(self, txn_id=txn_id, write_id=write_id, statement_id=statement_id)

    def required_txn_id(self) -> int:
        """Return the transaction's id. Raises TransactionStateError if the descriptor is not bound."""
        if self.txn_id is None:
            raise TransactionStateError(
                f"table {self.full_name}: the descriptor does not belong to a transaction yet; take it "
                "from transaction.table(name) after transaction.begin()"
            )
        return self.txn_id

    def required_write_id(self) -> int:
        """Return the id in file names and events: the write id, or in v1 the transaction's id.

        Raises TransactionStateError if the descriptor is not bound.
        """
        txn_id = self.required_txn_id()
        if not self.version.uses_write_ids:
            return txn_id
        if self.write_id is None:
            raise TransactionStateError(
                f"table {self.full_name}: the descriptor of transaction {txn_id} has no write id; "
                "take it from transaction.table(name) after transaction.begin()"
            )
        return self.write_id

    def partition_location(self, partition_name: str) -> Location:
        """Return the location of the partition with this (escaped) name, whether it exists or not.

        '' stands for all of an unpartitioned table.
        """
        if not partition_name:
            return self.location
        return self.partition_locations.get(partition_name) or self.location / partition_name


STRIPE_BYTES_DEFAULT = 8 * 1024 * 1024
"""The stripe size of Hive's own writer for deltas (64 MiB / ``orc.base.delta.ratio``)."""
BATCH_ROWS_DEFAULT = 10_000
"""The number of single records that a coordinator collects before it encodes them."""
SORT_MEMORY_BYTES_DEFAULT = 128 * 1024 * 1024
"""The default sort memory. A Python worker needs about 150 MiB and one stripe in addition."""
SORT_MEMORY_BYTES_MAX = 2**31
"""The maximum sort memory. Arrow's string arrays safely hold at most half of it."""
ZLIB = "zlib"
"""The codec that Hive uses if the table does not set one."""
COMPRESSIONS = (ZLIB, "snappy", "lz4", "zstd", "none")
"""The codecs that both pyarrow and pyorc can write. ``AcidVersion.compressions`` lists those that a release
can read."""


@dataclass(frozen=True)
class WriterOptions:
    """Settings of the files that are written.

    Attributes:
        stripe_bytes: size at which a stripe is closed (with zlib, the size before compression). It also
            limits the memory of a writer.
        batch_rows: number of rows per batch in which single records are encoded.
        compression: one of COMPRESSIONS. If None, the table's own.
        sort_memory_bytes: memory in which a Spark task sorts its changes, at most SORT_MEMORY_BYTES_MAX. Data
            that does not fit is spilled to the executor's local disk. A coordinator ignores it.
        column_statistics: True to record statistics of the columns with the commit, as Hive's INSERT does, so
            that Hive plans queries well without ANALYZE TABLE. For Hive 3.1 (only of new partitions) and 4.
    """

    stripe_bytes: int = STRIPE_BYTES_DEFAULT
    batch_rows: int = BATCH_ROWS_DEFAULT
    compression: str | None = None
    sort_memory_bytes: int = SORT_MEMORY_BYTES_DEFAULT
    column_statistics: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a setting is out of range."""
        if self.stripe_bytes < 1 or self.batch_rows < 1:
            raise ConfigurationError(
                f"stripe_bytes ({self.stripe_bytes}) and batch_rows ({self.batch_rows}) must be at least 1"
            )
        if not 1 <= self.sort_memory_bytes <= SORT_MEMORY_BYTES_MAX:
            raise ConfigurationError(
                f"sort_memory_bytes ({self.sort_memory_bytes}) must be in 1 to {SORT_MEMORY_BYTES_MAX}"
            )
        if self.compression is not None and self.compression.lower() not in COMPRESSIONS:
            codecs = ", ".join(COMPRESSIONS)
            raise ConfigurationError(f"compression {self.compression!r} is not one of {codecs}")


class SnapshotView(Protocol):
    """A begun transaction, a snapshot that a client opened, or a past snapshot."""

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions that the snapshot sees, including compactions."""
        ...

    def valid_ids(self, table: str) -> ValidIdList:
        """Return the ids in the files of one of its tables that the snapshot sees."""
        ...

    def table(self, table: str) -> AcidTable:
        """Return the descriptor of one of its tables."""
        ...

    def partitions(self, table: str) -> Sequence[PartitionInfo]:
        """Return the partitions of one of its tables; empty if the table has no partition keys."""
        ...

    def check(self) -> None:
        """Raise an error if the snapshot's lock is lost."""
        ...


_VERSION = 1
_FORM = re.compile(r"AcidTable:([0-9]+):([A-Za-z0-9_=-]*):([0-9a-f]{8})")
_START = re.compile(r"AcidTable:([0-9]+):")
_SHOWN_CHARACTERS = 60
_MAX_BYTES = 128 << 20
"""The maximum size of a decompressed descriptor. A partition takes about 200 bytes."""
_ROWS_OF_FIELDS: dict[str, type] = {
    "columns": AcidColumn,
    "partition_keys": AcidColumn,
    "checks": CheckConstraint,
}
"""The fields of AcidTable that are tuples of a class whose fields are plain values."""

_DAMAGE = (LookupError, ValueError, TypeError, AttributeError, RecursionError)
"""Errors that occur for a string that :meth:`AcidTableSerializer.encode` did not write."""


class AcidTableSerializer:
    """Converts an AcidTable to a string and back."""

    @staticmethod
    def encode(table: AcidTable) -> str:
        """Write a table as a string."""
        fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
        for name in _ROWS_OF_FIELDS:
            fields[name] = [dataclasses.astuple(each) for each in fields[name]]
        fields["bloom_filters"] = dataclasses.astuple(table.bloom_filters)
        fields["partition_spellings"] = dict(table.partition_spellings)
        fields["ambiguous_partitions"] = {c: [*names] for c, names in table.ambiguous_partitions.items()}
        fields["location"] = str(table.location)
        fields["partition_locations"] = {name: str(at) for name, at in table.partition_locations.items()}
        fields["version"] = table.version.value
        fields["role"] = table.role.value
        text = json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        payload = base64.urlsafe_b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")
        return f"AcidTable:{_VERSION}:{payload}:{_checksum(payload)}"

    @staticmethod
    def decode(text: str) -> AcidTable:
        """Read a string that :meth:`encode` wrote.

        Raises:
            ConfigurationError: If the string is something else, is damaged, or comes from a newer release.
        """
        payload = _payload(text)
        try:
            fields = json.loads(_unpacked(base64.urlsafe_b64decode(payload)))
            for name, kind in _ROWS_OF_FIELDS.items():
                fields[name] = tuple(kind(*values) for values in fields[name])
            fields["bucket_columns"] = tuple(fields["bucket_columns"])
            columns, fpp = fields["bloom_filters"]
            fields["bloom_filters"] = BloomFilters(tuple(columns), fpp)
            fields["location"] = Location.parse(fields["location"])
            locations = fields["partition_locations"].items()
            fields["partition_locations"] = {name: Location.parse(text) for name, text in locations}
            ambiguous = fields["ambiguous_partitions"].items()
            fields["ambiguous_partitions"] = {name: tuple(others) for name, others in ambiguous}
            fields["version"] = AcidVersion(fields["version"])
            fields["role"] = TableRole(fields["role"])
            _check_names(fields)
            return AcidTable(**fields)
        except (*_DAMAGE, OSError, zlib.error) as error:
            raise ConfigurationError(f"damaged table descriptor {_shown(text)}: {error}") from error


def _unpacked(packed: bytes) -> bytes:
    """Decompress the payload.

    Raises ValueError if it is longer than the descriptor of any table, because it would fill the memory.
    """
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(packed, _MAX_BYTES)
    if not unpacking.eof:
        raise ValueError(f"it is cut off or has more than {_MAX_BYTES:,} bytes")
    return found


def _payload(text: str) -> str:
    start = _START.match(text)
    if not start:
        raise ConfigurationError(
            f"not a serialized table: got {_shown(text)}, expected AcidTable:{_VERSION}:…"
        )
    version = int(start.group(1))
    if version != _VERSION:
        raise ConfigurationError(
            f"serialized table of version {version}, but this release reads version {_VERSION}; use the "
            "same release on driver and workers"
        )
    form = _FORM.fullmatch(text)
    if not form or _checksum(form.group(2)) != form.group(3):
        raise ConfigurationError(
            f"damaged table descriptor {_shown(text)} ({len(text)} characters): it was cut off or changed"
        )
    return form.group(2)


def _check_names(fields: dict[str, object]) -> None:
    expected = {field.name for field in dataclasses.fields(AcidTable)}
    if set(fields) != expected:
        raise ValueError(f"fields that are missing or unknown: {sorted(set(fields) ^ expected)}")


def _checksum(payload: str) -> str:
    return f"{zlib.crc32(payload.encode('ascii')):08x}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
