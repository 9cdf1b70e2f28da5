"""DeltaManifest: what one task attempt wrote for one (table, partition, bucket, kind). Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass

from mutation_api.acid.layout import (
    bucket_file_name,
    delete_delta_directory_name,
    delta_directory_name,
    plain_file_name,
)
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import ManifestError

__all__ = ["STAGING_PREFIX", "DeltaManifest", "FileKind", "relative_path", "staging_directory"]

STATEMENT_ID = 0
"""In the names of our directories: a change set is one statement, and Hive's SQL numbers them from 0."""

STAGING_PREFIX = "_mutation_"
"""Staging directories start so; the underscore hides them from every Hive reader."""


class FileKind(enum.Enum):
    """Which of the two directories of a transaction a file belongs to."""

    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


def staging_directory(location: str, txn_id: int) -> str:
    """Hidden directory under a table's (or a foreign partition's) location in which transaction ``txn_id``
    stages files.

    Below it lie ``<writer_id>/<attempt_id>/…``: a writer is one Spark job or one coordinator of a plain
    process, an attempt is one task attempt. Nothing else may lie there.
    """
    return f"{location.rstrip('/')}/{STAGING_PREFIX}{txn_id}"


def relative_path(kind: FileKind, write_id: int, bucket_id: int, version: AcidVersion) -> str:
    """Where a file belongs, below its partition: ``delta_0000005_0000005_0000/bucket_00001``.

    In insert-only tables ``delta_0000005_0000005_0000/000001_0``.
    """
    directory_name = delta_directory_name if kind is FileKind.DELTA else delete_delta_directory_name
    file_name = bucket_file_name if version.has_row_ids else plain_file_name
    return f"{directory_name(write_id, write_id, STATEMENT_ID)}/{file_name(bucket_id)}"


@dataclass(frozen=True)
class DeltaManifest:
    """One staged file and where it belongs.

    ``partition_name`` is the escaped name, '' for an unpartitioned table; ``partition_values`` are the
    unescaped texts as the metastore stores them. ``final_path`` = partition location / ``delta_X_X_0000`` /
    ``bucket_00000``. Counts are events by operation as the user issued them: in a split table an update
    counts as one update in the ``delta`` manifest and as one in the ``delete_delta`` manifest, so sum
    updates over DELTA manifests only. ``write_id`` is the id in the names of directories: in v1 the
    transaction's.
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
    staged_path: str
    final_path: str
    insert_count: int
    update_count: int
    delete_count: int
    row_count: int
    byte_count: int
    stripe_count: int
    tail_crc32: int

    @property
    def full_table_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def group(self) -> tuple[str, str, str, int, FileKind]:
        """Of each group there may be one manifest only."""
        return (self.database, self.table, self.partition_name, self.bucket_id, self.kind)

    def to_json(self) -> str:
        """One line of JSON."""
        # Not asdict, which copies every value: 0.2 ms for each file.
        value = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return json.dumps(value | {"kind": self.kind.value}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DeltaManifest:
        """Inverse of :meth:`to_json`. Raises ManifestError, naming the text."""
        try:
            value: Mapping[str, object] = json.loads(text)
            return cls(
                **{
                    **value,
                    "kind": FileKind(value["kind"]),
                    "partition_values": tuple(value["partition_values"]),  # type: ignore[arg-type]
                }
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ManifestError(f"not a manifest: {text[:200]!r} ({error})") from error
