"""Files of rows at a user's path: their sizes, columns and encodings, by rules that all engines share.

Text files are opened as bytes, decompressed if their extension requires it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError, UnsupportedLocallyError
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.hive_type import HiveType, parse_hive_type, spark_type
from mutation_api.format.layout import is_hidden
from mutation_api.storage.connect import storage_at
from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.table.acid_table import AcidTable

SAMPLE_ROWS = 3
"""The number of rows with invalid values that a message shows."""


@dataclass(frozen=True)
class RowColumns:
    """The columns that files of a table's rows may have.

    ``others`` maps further columns to their Spark types. ``has_row_ids`` is True if ROW__ID is allowed. In
    CSV it is the columns ``ROW__ID.writeid`` and so on, which become one struct column. If ``keeps_unknown``,
    any other column of a CSV or JSON file is read as a string; otherwise it is refused.
    """

    table: AcidTable
    others: Mapping[str, str] = field(default_factory=dict)
    has_row_ids: bool = False
    keeps_unknown: bool = False

    def types(self) -> dict[str, str]:
        """Return the Spark type of every known column by lower-case name, without ROW__ID."""
        types = {c.name: spark_type(parse_hive_type(c.type)) for c in self.table.all_columns}
        return {**types, **{name.lower(): kind for name, kind in self.others.items()}}

    def flat_types(self) -> dict[str, str]:
        """Return the types of :meth:`types`, plus those of ROW__ID's columns in CSV if they are allowed."""
        row_id = {f"{ROW_ID_COLUMN}.{part}".lower(): kind for part, kind in row_id_types(self.table).items()}
        return {**self.types(), **(row_id if self.has_row_ids else {})}

    def hive_types(self) -> dict[str, HiveType]:
        """Return the Hive types of the same columns. A column that is missing here is a string."""
        types = {c.name: c.type for c in self.table.all_columns}
        types |= {name.lower(): kind for name, kind in self.others.items()}
        for part, kind in row_id_types(self.table).items():
            types[f"{ROW_ID_COLUMN}.{part}".lower()] = kind
        return {name: parse_hive_type(kind) for name, kind in types.items()}

    def check(self, file: Location, found: Sequence[str], known: Mapping[str, str]) -> None:
        """Raise RecordLayoutError if a column in ``found`` is unknown and unknown columns are not kept."""
        unknown = [name for name in found if name.lower() not in known]
        if unknown and not self.keeps_unknown:
            raise RecordLayoutError(
                f"{file.shown}: table {self.table.full_name} does not have the columns {', '.join(unknown)}; "
                f"expected {', '.join(known)}"
            )


def existing_file(file: Location) -> Location:
    """Return the location with links resolved.

    Only local files are checked here. The engine checks others, since Spark's configuration may differ.

    Raises:
        ConfigurationError: If a local file does not exist.
    """
    found = without_links(file)
    if found.local_path is not None and not Path(found.local_path).exists():
        raise ConfigurationError(f"file not found: {found.shown}")
    return found


def is_row_id(name: str) -> bool:
    """Return True if a column is ROW__ID, or one of its fields in CSV."""
    return name.lower().partition(".")[0] == ROW_ID_COLUMN.lower()


def row_id_part(name: str) -> str:
    """Return the field of ROW__ID that a CSV column holds, in lower case."""
    return name.lower().removeprefix(f"{ROW_ID_COLUMN.lower()}.")


def row_id_types(table: AcidTable) -> dict[str, str]:
    """Return the fields of ROW__ID and their types."""
    ids = {table.version.transaction_field: "bigint", "bucketid": "int", "rowid": "bigint"}
    return {**ids, PARTITION_FIELD: "string"}


def row_id_ddl(table: AcidTable) -> str:
    """Return the type of ROW__ID, in the syntax that Hive and Spark share."""
    return f"struct<{','.join(f'{part}:{kind}' for part, kind in row_id_types(table).items())}>"


def files_at(file: Location) -> list[FileEntry]:
    """Return the file itself, or the files of a directory ordered by name, without hidden ones.

    Raises:
        ConfigurationError: If nothing exists there, if the directory contains directories, or if the storage
            cannot be read.
    """
    try:
        storage = storage_at(file)
        found = storage.stat(file)
        if found is None:
            raise ConfigurationError(f"file not found: {file.shown}")
        if not found.is_directory:
            return [found]
        entries = [entry for entry in storage.list(file) if not is_hidden(entry.name)]
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
    folders = [entry.location.shown for entry in entries if entry.is_directory]
    if folders:
        raise ConfigurationError(
            f"{file.shown} contains directories ({folders[0]}), which only Spark reads. List the files, or "
            "use the Spark engine"
        )
    return entries


_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNKNOWN = (".deflate", ".lz4", ".snappy", ".xz", ".zip")
_READ_BYTES = 4 * 1024 * 1024


@contextmanager
def opened_text(file: Location) -> Iterator[io.BufferedReader]:
    """Yield the bytes of a file.

    Raises:
        ConfigurationError: If the storage cannot be read, when opening or within the block.
        UnsupportedLocallyError: If the compression is not supported.
    """
    name = file.name.lower()
    if name.endswith(_UNKNOWN):
        raise UnsupportedLocallyError(
            f"{file.shown}: only {', '.join(_PACKED)} can be decompressed without Spark"
        )
    codec = next((codec for ending, codec in _PACKED.items() if name.endswith(ending)), None)
    try:
        with storage_at(file).open_input(file) as stream:
            plain = stream if codec is None else pa.CompressedInputStream(stream, codec)
            with io.BufferedReader(plain, _READ_BYTES) as text:
                yield text
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
