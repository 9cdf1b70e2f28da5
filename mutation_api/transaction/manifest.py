"""Manifests of staged files, and the output of a transaction for one table. Pure.

A :class:`DeltaManifest` describes the file that one task attempt wrote for a (table, partition, bucket,
kind). A :class:`TableOutput` is passed to the committer.
"""

from __future__ import annotations

import enum
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metastore_client.model import DataOperationType, TableInfo
from metastore_client.partition_name import parse_partition_name
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.errors import ManifestError
from mutation_api.format.column_summary import RowSummary, summarised_families
from mutation_api.format.layout import (
    AcidVersion,
    bucket_file_name,
    delete_delta_directory_name,
    delta_directory_name,
    plain_file_name,
)
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTable

STAGING_PREFIX = "_mutation_"
"""Prefix of staging directories; the underscore hides them from every Hive reader."""

_MARK_PREFIX = "uploads_"


class FileKind(enum.Enum):
    """The directory of a transaction that a file belongs to."""

    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


def staging_directory(location: Location, txn_id: int) -> Location:
    """Return the hidden directory for files staged by a transaction, below a table's or partition's location.

    It contains only ``<writer_id>/<attempt_id>/…``. A writer is one Spark job, or one coordinator of a plain
    process; an attempt is one task attempt. If files are uploaded to their final locations, the directory
    of an attempt contains only its mark.
    """
    return location / f"{STAGING_PREFIX}{txn_id}"


def staging_of(table: AcidTable, location: Location, txn_id: int) -> Location:
    """Return the hidden directory for files staged by a transaction for a partition at a location.

    It is in the table's directory unless the partition is elsewhere. The next transaction on the table, which
    removes the files of dead ones, looks there and not into each partition.
    """
    return staging_directory(table.location if location.is_within(table.location) else location, txn_id)


def attempt_mark(write_id: int) -> str:
    """Return the name of the empty file that an attempt stages before it uploads anything.

    An upload names neither its attempt nor its transaction. The mark shows that there was such an attempt,
    and its id names the directories of the uploads.
    """
    return f"{_MARK_PREFIX}{write_id}"


def parse_attempt_mark(name: str) -> int | None:
    """Return the write id (transaction id in v1) in the name of a mark; None if it is not a mark."""
    number = name.removeprefix(_MARK_PREFIX)
    return int(number) if number != name and number.isdecimal() else None


def delta_names(write_id: int, statement_id: int) -> frozenset[str]:
    """Return the names of the directories for files of a statement."""
    return frozenset(
        {
            delta_directory_name(write_id, write_id, statement_id),
            delete_delta_directory_name(write_id, write_id, statement_id),
        }
    )


def delta_names_pattern(write_id: int) -> str:
    """Return a regular expression for the names of the directories of all statements of this id."""
    number = f"{write_id:07d}"
    return f"(delete_)?delta_{number}_{number}_[0-9]{{4,}}"


def relative_path(
    kind: FileKind, write_id: int, bucket_id: int, version: AcidVersion, statement_id: int
) -> str:
    """Return the path of a file below its partition: ``delta_0000005_0000005_0000/bucket_00001``.

    In insert-only tables it is ``delta_0000005_0000005_0000/000001_0``.
    """
    directory_name = delta_directory_name if kind is FileKind.DELTA else delete_delta_directory_name
    file_name = bucket_file_name if version.has_row_ids else plain_file_name
    return f"{directory_name(write_id, write_id, statement_id)}/{file_name(bucket_id)}"


@dataclass(frozen=True)
class DeltaManifest:
    """One staged file and its target.

    ``partition_name`` is the escaped name, '' for an unpartitioned table. ``partition_values`` are the
    unescaped strings as the metastore stores them. ``target`` is partition location / ``delta_X_X_0000`` /
    ``bucket_00000``; ``staged`` is published under this name. Counts are events by operation as the user
    issued them. In a split table an update counts as one update in the ``delta`` manifest and as one in the
    ``delete_delta`` manifest, so sum updates over DELTA manifests only. ``write_id`` is the id in directory
    names: the transaction id in v1. ``statement_id`` numbers the change sets of the transaction in the table.
    ``summary`` has the statistics of the file's new rows as JSON, '' if they were not gathered.
    """

    database: str
    table: str
    txn_id: int
    write_id: int
    partition_name: str
    partition_values: tuple[str, ...]
    bucket_id: int
    kind: FileKind
    writer_id: str
    attempt_id: str
    staged: Staged
    target: Location
    insert_count: int
    update_count: int
    delete_count: int
    row_count: int
    byte_count: int
    stripe_count: int
    tail_crc32: int
    statement_id: int = 0
    summary: str = ""

    @property
    def full_table_name(self) -> str:
        """The name ``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def group(self) -> tuple[str, int, str, int, FileKind]:
        """The key of the file's group; each group may have only one manifest."""
        return (self.full_table_name, self.statement_id, self.partition_name, self.bucket_id, self.kind)

    def to_json(self) -> str:
        """Return the manifest as one line of JSON."""
        # asdict would copy every value, which takes 0.2 ms per file.
        value = {name: getattr(self, name) for name in self.__dataclass_fields__}
        staged = [str(self.staged.location), self.staged.upload_id, self.staged.part_tags]
        value |= {"kind": self.kind.value, "staged": staged, "target": str(self.target)}
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DeltaManifest:
        """Parse the result of :meth:`to_json`. Raises ManifestError, quoting the string."""
        try:
            value: dict[str, Any] = json.loads(text)
            for name, kind in _JSON_TYPES.items():
                _check_type(value[name], kind)
            location, upload_id, part_tags = value["staged"]
            for each in (location, upload_id, *part_tags, *value["partition_values"]):
                _check_type(each, str)
            value["staged"] = Staged(Location.parse(location), upload_id, tuple(part_tags))
            value["target"] = Location.parse(value["target"])
            value["kind"] = FileKind(value["kind"])
            value["partition_values"] = tuple(value["partition_values"])
            return cls(**value)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError) as error:
            raise ManifestError(f"not a manifest: {text[:200]!r} ({error})") from error


_JSON_TYPES: dict[str, type] = {
    **dict.fromkeys(
        ("database", "table", "partition_name", "kind", "writer_id", "attempt_id", "target", "summary"), str
    ),
    **dict.fromkeys(("txn_id", "write_id", "statement_id", "bucket_id", "byte_count"), int),
    **dict.fromkeys(("stripe_count", "tail_crc32"), int),
    **dict.fromkeys(("insert_count", "update_count", "delete_count", "row_count"), int),
    **dict.fromkeys(("partition_values", "staged"), list),
}
"""JSON types by field."""


def _check_type(value: object, kind: type) -> None:
    if type(value) is not kind:  # isinstance(True, int) is True
        raise TypeError(f"{value!r} is not of type {kind.__name__}")


@dataclass(frozen=True)
class Replacement:
    """The partitions whose rows a transaction replaces, and the base that takes the new ones.

    Attributes:
        directory: the name of the base.
        rows: the number of old rows by (escaped) partition; '' if the table is not partitioned.
    """

    directory: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class TableOutput:
    """The output of a transaction for one table.

    ``table`` is bound. ``description`` and ``partitions_at_begin`` (names) are the table as it was when the
    transaction began. ``writers`` are the ids of the writers that handed in their manifests.
    ``valid_write_ids`` and ``valid_txns`` are the transaction's view of the table, if it uses write ids.
    ``depends_on_reads`` is True if others may change the table in the meantime and the inserted rows may
    depend on rows that were read; ``depends_on_all_partitions`` is True if they may also depend on rows of
    partitions that were not touched. With ``replacement``, no other statement has written to the table.
    """

    table: AcidTable
    description: TableInfo
    writers: frozenset[str]
    manifests: tuple[DeltaManifest, ...]
    partitions_at_begin: frozenset[str]
    insert_only: bool = False
    valid_write_ids: ValidWriteIdList | None = None
    valid_txns: ValidTxnList | None = None
    depends_on_reads: bool = False
    depends_on_all_partitions: bool = False
    replacement: Replacement | None = None

    @property
    def replaced(self) -> Mapping[str, int]:
        """The numbers of replaced rows, by partition."""
        return {} if self.replacement is None else self.replacement.rows

    @property
    def is_written(self) -> bool:
        """True if there is anything to publish."""
        return bool(self.manifests or self.replaced)

    @property
    def partition_values(self) -> dict[str, tuple[str, ...]]:
        """The unescaped values of every touched partition, by name; empty for an unpartitioned table."""
        replaced = {
            name: tuple(value for _, value in parse_partition_name(name)) for name in self.replaced if name
        }
        return replaced | {m.partition_name: m.partition_values for m in self.manifests if m.partition_name}

    def final_path(self, manifest: DeltaManifest) -> str:
        """Return the path below its partition under which a file is published."""
        version = self.table.version
        path = relative_path(
            manifest.kind, manifest.write_id, manifest.bucket_id, version, manifest.statement_id
        )
        if self.replacement is None or manifest.partition_name not in self.replaced:
            return path
        return f"{self.replacement.directory}/{path.partition('/')[2]}"

    @property
    def partitions_without_rows(self) -> frozenset[str]:
        """The names of partitions in which rows change although no rows were visible there.

        The snapshot had none, and no earlier statement of the transaction has written any.
        """
        first: dict[str, int] = {}
        for m in self.manifests:
            if m.insert_count:
                first[m.partition_name] = min(m.statement_id, first.get(m.partition_name, m.statement_id))
        changing = (m for m in self.manifests if m.update_count + m.delete_count)
        changed = {
            m.partition_name
            for m in changing
            if first.get(m.partition_name, m.statement_id) >= m.statement_id
        }
        return frozenset(changed - {""} - self.partitions_at_begin)

    @property
    def write_id(self) -> int | None:
        """The transaction's write id for the table; None in v1."""
        return self.table.required_write_id() if self.table.version.uses_write_ids else None

    @property
    def operation(self) -> DataOperationType:
        """The operation to register partitions with; the server's conflict check ignores inserts."""
        changes = any(m.update_count or m.delete_count for m in self.manifests)
        is_update = changes or self.depends_on_reads or self.replaced
        return DataOperationType.UPDATE if is_update else DataOperationType.INSERT

    @property
    def summaries(self) -> dict[str, RowSummary]:
        """The statistics of the new rows by partition ('' if unpartitioned), if all its files have them."""
        families = summarised_families(self.table.columns)
        found: dict[str, RowSummary] = {}
        unknown = set()
        for manifest in self.manifests:
            if manifest.kind is not FileKind.DELTA:
                continue
            if not manifest.summary:
                unknown.add(manifest.partition_name)
                continue
            summary = RowSummary.from_json(families, manifest.summary)
            found.setdefault(manifest.partition_name, RowSummary(families)).merge(summary)
        return {name: summary for name, summary in found.items() if name not in unknown}

    @property
    def changed_partitions(self) -> frozenset[str]:
        """The names of partitions in which rows are updated or deleted."""
        return frozenset(m.partition_name for m in self.manifests if m.update_count or m.delete_count)

    @property
    def row_count_changes(self) -> Counter[str]:
        """The change in the number of rows of each touched partition ('' if unpartitioned)."""
        changes: Counter[str] = Counter()
        for manifest in self.manifests:
            changes[manifest.partition_name] += manifest.insert_count - manifest.delete_count
        changes.subtract(self.replaced)
        return changes
