"""Change sets in files: ``diff`` makes one to save, ``apply_changes`` takes one that was read.

A file has the operation, the table's columns and ROW__ID: a struct, in CSV the columns ``ROW__ID.writeid``
and so on. Values are written such that each is read again as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.change_set.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.changes.files.row_files import RowFiles
from mutation_api.errors import ClientError
from mutation_api.scan.file_format import file_format
from mutation_api.spark.quoted_name import quoted
from mutation_api.storage.connect import storage_at
from mutation_api.storage.links import without_links
from mutation_api.storage.location import Location
from mutation_api.storage.replacing import hidden_beside, move_to
from mutation_api.table.acid_table import AcidTable

__all__ = ["read_changes", "save_changes"]

_WRITING: Mapping[str, Mapping[str, bool | str]] = {
    "csv": {
        "header": True,
        "escape": '"',
        "ignoreLeadingWhiteSpace": False,
        "ignoreTrailingWhiteSpace": False,
    },
    "json": {"ignoreNullFields": False, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"},
    "orc": {},
    "parquet": {},
}
"""Options of Spark's writers, so that every value can be read again as it was."""


def read_changes(
    spark: SparkSession,
    table: AcidTable,
    file: Location,
    format_name: str | None = None,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> DataFrame:
    """Read a file of changes with the table's types.

    Args:
        spark: the session.
        table: whose changes they are.
        file: a file, or a folder of files of one format.
        format_name: one of :data:`~mutation_api.scan.file_format.FORMATS`; None for what the name ends in.
        operation_column: name of the operation's column.

    Returns:
        A DataFrame as ``apply_changes`` takes it.

    Raises:
        RecordLayoutError, RecordValueError, ConfigurationError: see :meth:`RowFiles.read`.
    """
    return RowFiles(spark, table, {operation_column: "string"}, has_row_ids=True).read(file, format_name)


def save_changes(
    changes: DataFrame, file: Location, format_name: str | None = None, *, order: Sequence[str]
) -> None:
    """Write changes into one file, sorted; it is there when it is complete, and replaces an older one.

    Args:
        changes: operation, ROW__ID, columns.
        file: its folder exists, where storages have folders.
        format_name: one of :data:`~mutation_api.scan.file_format.FORMATS`; None for what the name ends in.
        order: names of the columns to sort by.

    Raises:
        ConfigurationError: the format is not known.
        ClientError: the file cannot be written.
    """
    name = file_format(file, format_name)
    # One task sorts and writes; the comparison before it keeps its own tasks, which coalesce would take.
    rows = changes.repartition(1).sortWithinPartitions(*[quoted(column) for column in order])
    if name == "csv":
        rows = _as_texts(rows)
    file = without_links(file)
    folder = hidden_beside(file)
    storage = storage_at(file)
    try:
        rows.write.format(name).options(**_WRITING[name]).save(str(folder))
        (part,) = (entry for entry in storage.list(folder) if entry.name.startswith("part-"))
        move_to(part.location, file)
    except OSError as error:
        raise ClientError(f"{file.shown}: the file cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            storage.delete_directory(folder)


def _as_texts(changes: DataFrame) -> DataFrame:
    """Everything as Spark's text of it, which loses no digits, and ROW__ID as one column a field."""
    row_id = changes.schema[ROW_ID_COLUMN].dataType
    assert isinstance(row_id, StructType)
    fields = [
        sf.col(quoted(ROW_ID_COLUMN, f.name)).cast("string").alias(f"{ROW_ID_COLUMN}.{f.name}")
        for f in row_id.fields
    ]
    others = [sf.col(quoted(n)).cast("string").alias(n) for n in changes.columns if n != ROW_ID_COLUMN]
    return changes.select(others[0], *fields, *others[1:])
