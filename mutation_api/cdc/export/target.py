"""Targets: tables in another format that hold a copy of a table, with the position that they have reached.

The record of an export (:class:`ExportRecord`) is in the commit of the target that brought it to the
position. So a commit and its position cannot be separated by a crash. Each commit requires that the target is
as it was read. A commit that no export made ends the export: its rows are neither overwritten nor mixed with
others.
"""

from __future__ import annotations

import abc
import contextlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from mutation_api.cdc.export.exported_types import DELTA, ICEBERG
from mutation_api.cdc.export.units import Unit
from mutation_api.errors import ConfigurationError, ConnectionFailedError

_PREFIX = "hive.export."


@dataclass(frozen=True)
class ExportRecord:
    """The state of an export, as a commit of its target carries it.

    Attributes:
        table: ``database.table`` in Hive.
        created: the time at which Hive's table was created, in seconds since 1970. A table that was dropped
            and created again has another one.
        position: the position of the table, or of all tables that were exported together. '' before the first
            copy.
        sequence: the number of the commit, from 0.
    """

    table: str
    created: int
    position: str
    sequence: int

    @property
    def app_id(self) -> str:
        """The name of the export in formats that number the commits of applications."""
        return f"{_PREFIX}{self.table}"

    def to_properties(self) -> dict[str, str]:
        """Return the record as properties of a commit."""
        return {
            f"{_PREFIX}table": self.table,
            f"{_PREFIX}created": str(self.created),
            f"{_PREFIX}position": self.position,
            f"{_PREFIX}sequence": str(self.sequence),
        }

    @classmethod
    def from_properties(cls, given: Mapping[str, Any]) -> ExportRecord | None:
        """Return the record in the properties of a commit. None if no export made the commit."""
        try:
            return cls(
                str(given[f"{_PREFIX}table"]),
                int(given[f"{_PREFIX}created"]),
                str(given[f"{_PREFIX}position"]),
                int(given[f"{_PREFIX}sequence"]),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class TargetFile:
    """A data file of a target.

    Attributes:
        unit: the unit whose rows it holds.
        row_count: the number of its rows.
        byte_count: its size.
        handle: what the target needs to remove it.
    """

    unit: Unit
    row_count: int
    byte_count: int
    handle: Any


@dataclass(frozen=True)
class NewFile:
    """A data file that was written and is not part of the target yet.

    Attributes:
        unit: the unit whose rows it holds.
        path: its path, in the form of the target.
        row_count: the number of its rows.
        byte_count: its size.
        metadata: the metadata of the Parquet file.
        partition: the values of the partition columns, as in Arrow.
    """

    unit: Unit
    path: str
    row_count: int
    byte_count: int
    metadata: Any
    partition: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class TargetChange:
    """All that one commit changes in a target."""

    added: Sequence[NewFile]
    removed: Sequence[TargetFile]
    new_columns: Sequence[pa.Field]
    record: ExportRecord


class Target(abc.ABC):
    """A table in another format. Its methods that read see the target as :meth:`load` found it.

    Attributes:
        name: the address, for messages.
        kind: DELTA or ICEBERG.
    """

    name: str
    kind: str

    @abc.abstractmethod
    def load(self) -> ExportRecord | None:
        """Read the newest state, and return its record. None if the table does not exist.

        Raises:
            ConfigurationError: If the last commit of the table, or the table itself, is not that of an
                export.
        """

    @abc.abstractmethod
    def create(self, schema: pa.Schema, partition_by: Sequence[str], record: ExportRecord) -> None:
        """Create the table without rows, and load it."""

    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns of the table."""

    @abc.abstractmethod
    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the partition columns."""

    @abc.abstractmethod
    def files(self) -> list[TargetFile]:
        """Return the data files. Raises ConfigurationError if one was not written by an export."""

    @abc.abstractmethod
    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns of a data file, for the columns that the table will have."""

    @abc.abstractmethod
    def create_file(self, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """Create a file. It is complete at the end of the block."""

    @abc.abstractmethod
    def open_file(self, file: TargetFile) -> contextlib.AbstractContextManager[BinaryIO]:
        """Open a data file for reading."""

    @abc.abstractmethod
    def new_path(self, unit: Unit) -> str:
        """Return the path of a new file of a unit."""

    @abc.abstractmethod
    def commit(self, change: TargetChange) -> None:
        """Make the change, which requires that the target has not changed since it was loaded.

        Rows, files and the record change in one commit.

        Raises:
            LockLostError: If it has changed. Nothing of the change is visible.
        """

    @abc.abstractmethod
    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, as the reader of the format itself returns them."""


@dataclass(frozen=True)
class TargetAddress:
    """The address of a target: ``delta:URL`` or ``iceberg:catalog.namespace.table``.

    ``{database}`` and ``{table}`` in an address stand for those of the exported table.
    """

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TargetAddress:
        """Parse an address.

        Raises:
            ConfigurationError: If it has another form.
        """
        kind, _, name = text.partition(":")
        if kind == DELTA and name:
            return cls(kind, re.sub("^s3[an]:", "s3:", name))
        if kind == ICEBERG and len(name.split(".")) >= 3 and all(name.split(".")):
            return cls(kind, name)
        raise ConfigurationError(
            f"target {text!r}: expected delta:URL, such as delta:s3://bucket/orders, or "
            "iceberg:CATALOG.NAMESPACE.TABLE"
        )

    def of_table(self, full_name: str) -> TargetAddress:
        """Return the address with the names of a table."""
        database, table = full_name.split(".")
        name = self.name.replace("{database}", database).replace("{table}", table)
        return TargetAddress(self.kind, name)

    def __str__(self) -> str:
        """Return the address as it was given."""
        return f"{self.kind}:{self.name}"


_PACKAGES = ("_internal", "deltalake", "pyiceberg", "requests", "sqlalchemy")
"""The first names of modules whose errors are those of a target; deltalake's own are in ``_internal``."""


@contextlib.contextmanager
def target_errors(target: TargetAddress) -> Iterator[None]:
    """Turn errors of the packages for targets into ConnectionFailedError."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _PACKAGES:
            raise
        raise ConnectionFailedError(
            f"target {target}: {type(error).__name__}: {error}. Run the export again: it finds out "
            "whether its commit was made"
        ) from error


def foreign_commit(target: str, what: str) -> ConfigurationError:
    """Return the error for a commit that no export made."""
    return ConfigurationError(
        f"target {target}: {what} was not made by an export, so the target's rows are no longer those of the "
        "position. Nothing was changed. Export the table to a new target, or remove this one first"
    )


def file_id() -> str:
    """Return the unique part of a new file's name."""
    return uuid.uuid4().hex
