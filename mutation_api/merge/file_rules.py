"""Rules for files of rows: columns, sizes, and encodings.

What files of rows must be like, whichever engine reads them.

Which files a user means, and how large they are.

The bytes of a file of text, unpacked if its name tells that it is packed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from mutation_api.errors import ConfigurationError, LocalEngineError, RecordLayoutError
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.hive_type import NESTED_KINDS, HiveType, parse_hive_type, spark_type
from mutation_api.format.layout import is_hidden
from mutation_api.storage.connect import storage_at
from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.table.acid_table import AcidTable

__all__ = [
    "COMPLEX_KINDS",
    "SAMPLE_ROWS",
    "RowColumns",
    "check_scalar",
    "existing_file",
    "files_at",
    "is_row_id",
    "opened_text",
    "row_id_ddl",
    "row_id_part",
    "row_id_types",
]


COMPLEX_KINDS = (*NESTED_KINDS, "binary")
"""Kinds of Hive types of which CSV files of changes are read, but not written."""
SAMPLE_ROWS = 3
"""Rows with wrong values that a message shows."""


@dataclass(frozen=True)
class RowColumns:
    """The columns that files of rows of a table may have.

    ``others`` are columns beside the table's, name to Spark's type. ``has_row_ids`` says whether ROW__ID may
    be there: in CSV as ``ROW__ID.writeid`` and so on, which become one struct column. ``keeps_unknown``: any
    other column of a CSV or JSON file is text; otherwise it is refused.
    """

    table: AcidTable
    others: Mapping[str, str] = field(default_factory=dict)
    has_row_ids: bool = False
    keeps_unknown: bool = False

    def types(self) -> dict[str, str]:
        """Spark's type of every known column by lower-case name, ROW__ID apart."""
        types = {c.name: spark_type(parse_hive_type(c.type)) for c in self.table.all_columns}
        return {**types, **{name.lower(): kind for name, kind in self.others.items()}}

    def flat_types(self) -> dict[str, str]:
        """The same with the columns of ROW__ID in CSV."""
        row_id = {f"{ROW_ID_COLUMN}.{part}".lower(): kind for part, kind in row_id_types(self.table).items()}
        return {**self.types(), **(row_id if self.has_row_ids else {})}

    def hive_types(self) -> dict[str, HiveType]:
        """The types of the same columns as of Hive; any other column is text."""
        types = {c.name: c.type for c in self.table.all_columns}
        types |= {name.lower(): kind for name, kind in self.others.items()}
        for part, kind in row_id_types(self.table).items():
            types[f"{ROW_ID_COLUMN}.{part}".lower()] = kind
        return {name: parse_hive_type(kind) for name, kind in types.items()}

    def check(self, file: Location, found: Sequence[str], known: Mapping[str, str]) -> None:
        """Raise RecordLayoutError if a column that was found is not known and must be."""
        unknown = [name for name in found if name.lower() not in known]
        if unknown and not self.keeps_unknown:
            raise RecordLayoutError(
                f"{file.shown}: table {self.table.full_name} has no columns {', '.join(unknown)}; known are "
                f"{', '.join(known)}"
            )


def existing_file(file: Location) -> Location:
    """The same without links. Raises ConfigurationError if nothing is there on a local disk.

    Elsewhere the engine looks; Spark may be configured otherwise than we are.
    """
    found = without_links(file)
    if found.local_path is not None and not Path(found.local_path).exists():
        raise ConfigurationError(f"there is no file {found.shown}")
    return found


def check_scalar(table: AcidTable) -> None:
    """Refuse a table whose changes are not written as CSV. Raises RecordLayoutError: names the columns."""
    complex_columns = [c for c in table.all_columns if parse_hive_type(c.type).kind in COMPLEX_KINDS]
    if complex_columns:
        named = ", ".join(f"{c.name} {c.type}" for c in complex_columns)
        raise RecordLayoutError(
            f"table {table.full_name}: changes of the columns {named} are not written as CSV; use JSON, ORC "
            "or Parquet"
        )


def is_row_id(name: str) -> bool:
    """Whether a column is ROW__ID, or a field of it in CSV."""
    return name.lower().partition(".")[0] == ROW_ID_COLUMN.lower()


def row_id_part(name: str) -> str:
    """The field of ROW__ID that a column of CSV holds, in lower case."""
    return name.lower().removeprefix(f"{ROW_ID_COLUMN.lower()}.")


def row_id_types(table: AcidTable) -> dict[str, str]:
    """The fields of ROW__ID and their types."""
    ids = {table.version.transaction_field: "bigint", "bucketid": "int", "rowid": "bigint"}
    return {**ids, PARTITION_FIELD: "string"}


def row_id_ddl(table: AcidTable) -> str:
    """The type of ROW__ID, for Hive and Spark alike."""
    return f"struct<{','.join(f'{part}:{kind}' for part, kind in row_id_types(table).items())}>"


def files_at(file: Location) -> list[FileEntry]:
    """The file, or the files of a folder by name, without hidden ones.

    Raises:
        ConfigurationError: there is nothing, the folder has folders, or the storage cannot be read.
    """
    try:
        storage = storage_at(file)
        found = storage.stat(file)
        if found is None:
            raise ConfigurationError(f"there is no file {file.shown}")
        if not found.is_directory:
            return [found]
        entries = [entry for entry in storage.list(file) if not is_hidden(entry.name)]
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
    folders = [entry.location.shown for entry in entries if entry.is_directory]
    if folders:
        raise ConfigurationError(
            f"{file.shown} holds folders ({folders[0]}), and only Spark reads those: name the files, or use "
            "its engine"
        )
    return entries


_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNKNOWN = (".deflate", ".lz4", ".snappy", ".xz", ".zip")
_READ_BYTES = 4 * 1024 * 1024


@contextmanager
def opened_text(file: Location) -> Iterator[io.BufferedReader]:
    """The bytes of a file.

    Raises:
        ConfigurationError: the storage cannot be read, here or in the block.
        LocalEngineError: it is packed otherwise.
    """
    name = file.name.lower()
    if name.endswith(_UNKNOWN):
        raise LocalEngineError(f"{file.shown}: only {', '.join(_PACKED)} are unpacked without Spark")
    codec = next((codec for ending, codec in _PACKED.items() if name.endswith(ending)), None)
    try:
        with storage_at(file).open_input(file) as stream:
            plain = stream if codec is None else pa.CompressedInputStream(stream, codec)
            with io.BufferedReader(plain, _READ_BYTES) as text:
                yield text
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
