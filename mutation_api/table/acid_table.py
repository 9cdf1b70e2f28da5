"""AcidTable: the light, frozen descriptor of one table that the driver hands to workers."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.acid.bucket_codec import MAX_BUCKETS
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import TransactionStateError
from mutation_api.storage.location import Location

__all__ = ["AcidColumn", "AcidTable", "CheckConstraint", "TableRole"]


class TableRole(enum.Enum):
    """What a transaction may do with the table."""

    SOURCE = "source"
    SINK = "sink"


@dataclass(frozen=True)
class AcidColumn:
    """A column: name in lower case, Hive type text, and the constraints that Hive enforces on it.

    ``default`` is the SQL text of the value of rows that lack the column; '' stands for NULL.
    """

    name: str
    type: str
    not_null: bool = False
    default: str = ""


@dataclass(frozen=True)
class CheckConstraint:
    """A condition in Hive's SQL that must not be false for any row."""

    name: str
    condition: str


@dataclass(frozen=True)
class AcidTable:
    """Exactly what a worker needs to write or read one table.

    ``columns`` are the data columns in table order; ``bucket_columns`` are in CLUSTERED BY order.
    ``txn_id`` is None until :meth:`bind`; only a bound sink can be written. ``write_id`` is set with it if
    the version uses write ids.
    ``partition_spellings`` maps the canonical partition name to the name of an existing partition that
    spells the same values differently (``hr=1`` -> ``hr=01``). ``partition_locations`` holds, by name, the
    location of partitions outside their default directory. ``ambiguous_partitions`` maps a canonical name to
    the names of all partitions that have its values, if there are several; they can be read, but not written.
    All three hold exceptions only. ``null_partition_text`` is the server's name of the partition of NULL.
    ``goes_by_position``: the setting ``orc.force.positional.evolution`` that holds for the table; None: none.
    ``prints_shortest_numbers``: its Hive runs on Java 19 or later (``types.java_float_text``).
    ``was_altered``: Hive's ALTER TABLE may have changed how rows are bucketed, and it moves none.
    ``user`` is the value of ``current_user()`` in defaults; '' if the table has none.
    ``time_zone`` is the zone of Hive's own processes, which the v1 hash of timestamp bucket columns depends
    on. ``checks`` are the CHECK constraints that Hive enforces, of columns and of the table.
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

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the data columns."""
        return tuple(c.name for c in self.columns)

    @property
    def all_columns(self) -> tuple[AcidColumn, ...]:
        """Data columns, then partition columns."""
        return (*self.columns, *self.partition_keys)

    @property
    def partition_key_names(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return tuple(c.name for c in self.partition_keys)

    @property
    def is_bucketed(self) -> bool:
        """Whether the table is CLUSTERED BY."""
        return bool(self.bucket_columns)

    @property
    def placing_columns(self) -> frozenset[str]:
        """Partition and bucket columns. A row must move if their values change."""
        return frozenset((*self.partition_key_names, *self.bucket_columns))

    @property
    def bucket_limit(self) -> int:
        """Bucket ids are below this; without bucketing, the number of buckets that a ROW__ID can hold.

        So also if the table had more buckets once. Only Hive 2 leaves files of others unread.
        """
        has_others = self.was_altered and self.version.uses_write_ids
        return self.num_buckets if self.is_bucketed and not has_others else MAX_BUCKETS

    @property
    def matches_columns_by_position(self) -> bool:
        """Columns of a file are the table's in order, whatever their names; otherwise they go by name."""
        asked = self.goes_by_position
        return self.version.matches_columns_by_position if asked is None else asked

    @property
    def keeps_misplaced_rows(self) -> bool:
        """Rows may lie in a bucket other than their hash says; an update leaves them there."""
        return self.was_altered or self.version.keeps_misplaced_rows

    def bind(self, txn_id: int, write_id: int | None = None) -> AcidTable:
        """A copy to be written under transaction ``txn_id``, in v2 with this write id."""
        return dataclasses.replace(self, txn_id=txn_id, write_id=write_id)

    def required_txn_id(self) -> int:
        """The transaction's id. Raises TransactionStateError if the descriptor is not bound."""
        if self.txn_id is None:
            raise TransactionStateError(
                f"table {self.full_name}: the descriptor belongs to no transaction yet; "
                "take it from transaction.table(name) after transaction.begin()"
            )
        return self.txn_id

    def required_write_id(self) -> int:
        """The id in file names and events: the write id, in v1 the transaction's id.

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
        """Location at which the partition with this (escaped) name lies, or would be created.

        '' means the whole of an unpartitioned table.
        """
        if not partition_name:
            return self.location
        return self.partition_locations.get(partition_name) or self.location / partition_name
