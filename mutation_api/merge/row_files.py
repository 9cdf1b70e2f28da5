"""Files of rows and of changes, read and written by Spark.

RowFiles: files of rows, read with the types of a table.

CSV and JSON are read with the table's types. A text that is no value of its column's type is refused, naming
the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty one ("") the empty
text. ORC and Parquet have types of their own, which the writer converts.

Spark reads the files, and Python in its tasks makes values of CSV's texts and parses JSON's lines, by the
rules of the local engine: Spark's own parsers cut times off dates, round decimals, read 1e400 as Infinity,
and 128 for a tinyint as -128.

Spark reads them, so what is not on a local disk is reached as Spark is configured to. It always gets the
whole location: it would look for a plain path in ``fs.defaultFS``.

Change sets in files: ``diff`` makes one to save, ``apply_changes`` takes one that was read.

A file has the operation, the table's columns and ROW__ID: a struct, in CSV the columns ``ROW__ID.writeid``
and so on. Values are written such that each is read again as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from mutation_api.errors import ClientError, ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import HiveType, MisfitError
from mutation_api.format.json_values import from_cells
from mutation_api.merge.file_rules import (
    COMPLEX_KINDS,
    SAMPLE_ROWS,
    RowColumns,
    is_row_id,
    row_id_ddl,
    row_id_part,
)
from mutation_api.merge.json_files import JsonNames, JsonRows, check_json_names
from mutation_api.read.export import file_format
from mutation_api.spark.versions import ArrowColumn, computed, data_type, try_cast
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.connect import hidden_beside, move_to, storage_at
from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import quoted
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT

__all__ = ["RowFiles", "read_changes", "save_changes"]


QUOTED_EMPTY = "\x01"
"""Stands for "" while CSV is parsed, since Spark reads that as it reads an empty field."""


@dataclass(frozen=True)
class RowFiles:
    """Reads files that hold rows of a table.

    The fields after ``spark`` are those of :class:`~mutation_api.merge.file_rules.RowColumns`.
    """

    spark: SparkSession
    table: AcidTable
    others: Mapping[str, str] = field(default_factory=dict)
    has_row_ids: bool = False
    keeps_unknown: bool = False

    def read_all(self, files: Sequence[Location], format_name: str | None = None) -> DataFrame:
        """The rows of several files; the format as of :func:`~mutation_api.read.export.file_format`.

        Raises:
            RecordLayoutError: see :meth:`read`; or the files differ in columns or types.
            RecordValueError, ConfigurationError: see :meth:`read`.
        """
        frames = [self.read(file, format_name) for file in files]
        wanted = _layout(frames[0])
        for file, frame in zip(files, frames, strict=True):
            if _layout(frame) != wanted:
                raise RecordLayoutError(
                    f"{file.shown} has the columns {_described(_layout(frame))}, {files[0].shown} has "
                    f"{_described(wanted)}; files of one source must have the same"
                )
        return reduce(lambda one, other: one.unionByName(other), frames)

    def read(self, file: Location, format_name: str | None = None) -> DataFrame:
        """The rows of a file, or of a folder of files of one format; None for the one that its name tells.

        Raises:
            RecordLayoutError: columns are unknown, or of a type the format cannot hold.
            RecordValueError: values that are no values of their column's type; the message names some.
            ConfigurationError, WorkerError: the file cannot be read as this format, or its name tells none.
        """
        format_name = file_format(file, format_name)
        try:
            with translated_worker_errors(f"{file.shown} cannot be read as {format_name}"):
                match format_name:
                    case "csv":
                        return self._read_csv(file)
                    case "json":
                        return self._read_json(file)
                    case _:
                        return self.spark.read.format(format_name).load(str(file))
        except AnalysisException as error:
            raise ConfigurationError(f"{file.shown} cannot be read as {format_name}: {error}") from error

    def _read_csv(self, file: Location) -> DataFrame:
        texts = (
            self.spark.read.option("header", True)
            .option("enforceSchema", False)  # the files of a folder must have the same header
            .option("emptyValue", QUOTED_EMPTY)
            .option("multiLine", True)
            .option("escape", '"')
            .option("mode", "FAILFAST")
            .csv(str(file))
        )
        known = self._columns.flat_types()
        self._columns.check(file, texts.columns, known)
        names = {name: known.get(name.lower(), "string") for name in texts.columns}
        texts = texts.select(*[_unquoted(name) for name in texts.columns])
        _check_values(self._columns, file, texts, names)
        kinds = self._columns.hive_types()
        parsed = {
            name: ArrowColumn(_ParsedCells(kinds[name.lower()], data_type(kind)), kind, (_field(name),))
            for name, kind in names.items()
            if name.lower() in kinds and not _is_cast(kinds[name.lower()])
        }
        if parsed:
            texts = computed(texts, {name: parsed.get(name, _field(name)) for name in names})
        typed = [
            (_field(name) if name in parsed else _field(name).cast(kind)).alias(name)
            for name, kind in names.items()
            if not is_row_id(name)
        ]
        row_id = [
            _field(name).cast(kind).alias(row_id_part(name))
            for name, kind in names.items()
            if is_row_id(name)
        ]
        if not row_id:
            return texts.select(*typed)
        row_id_texts = [_field(name) for name in names if is_row_id(name)]
        struct = sf.when(sf.coalesce(*row_id_texts).isNotNull(), sf.struct(*row_id))
        return texts.select(struct.alias(ROW_ID_COLUMN), *typed)

    def _read_json(self, file: Location) -> DataFrame:
        # A pass tells the names: Spark's own drops columns of empty objects.
        lines = self.spark.read.text(str(file))
        found = lines.mapInArrow(JsonNames(file).__call__, "name string").distinct().collect()
        names = sorted(row["name"] for row in found)
        known = self._columns.types()
        if self.has_row_ids:
            known[ROW_ID_COLUMN.lower()] = row_id_ddl(self.table)
        self._columns.check(file, names, known)
        check_json_names(file, names)
        schema = StructType(
            [StructField(name, data_type(known.get(name.lower(), "string"))) for name in names]
        )
        # Spark's own parser cuts times, rounds decimals, and makes -128 of 128 for a tinyint.
        parse = JsonRows(self._columns, file, to_arrow_schema(schema))
        return lines.mapInArrow(parse.__call__, schema)

    @property
    def _columns(self) -> RowColumns:
        return RowColumns(self.table, self.others, self.has_row_ids, self.keeps_unknown)


def _check_values(columns: RowColumns, file: Location, texts: DataFrame, types: Mapping[str, str]) -> None:
    """Refuse texts that are no values of their column's type, before anything is written."""
    kinds = columns.hive_types()
    checked = [name for name, kind in types.items() if kind != "string"]
    if not checked:
        return
    # Spark's own casts cut times, round decimals, and make an infinity of 1e400.
    refused = {
        f"\x01{number}": ArrowColumn(_RefusedTexts(kinds[name.lower()]), "boolean", (_field(name),))
        for number, name in enumerate(checked)
    }
    texts = computed(texts, {**{name: _field(name) for name in types}, **refused})
    wrong = {
        name: _field(mark) | (_field(name).isNotNull() & try_cast(name, types[name]).isNull())
        if _is_cast(kinds[name.lower()])
        else _field(mark)
        for name, mark in zip(checked, refused, strict=True)
    }
    wrong_names = sf.array_compact(
        sf.array(*[sf.when(is_wrong, sf.lit(name)) for name, is_wrong in wrong.items()])
    )
    with translated_worker_errors(f"{file.shown}: reading the file"):
        rows = (
            texts.withColumn("\x01wrong", wrong_names)
            .drop(*refused)
            .where(sf.size("\x01wrong") > 0)
            .take(SAMPLE_ROWS)
        )
    if rows:
        samples = [
            f"column {name} ({types[name]}) has {row[name]!r} in row {tuple(row)[:-1]!r}"
            f"{_reason(row[name], kinds[name.lower()])}"
            for row in rows
            for name in row["\x01wrong"]
        ]
        raise RecordValueError(
            f"{file.shown}, table {columns.table.full_name}: values that do not fit: {'; '.join(samples)}"
        )


@dataclass(frozen=True)
class _RefusedTexts:
    """The function that runs in tasks: which texts are no values of a type, at least the first ones."""

    hive_type: HiveType

    def __call__(self, texts: pa.Array) -> pa.Array:
        found = np.zeros(len(texts), np.bool_)
        texts = texts.cast(pa.string())
        for _ in range(SAMPLE_ROWS):
            try:
                from_cells(texts, self.hive_type)
            except MisfitError as misfit:
                found[misfit.row] = True
                texts = pc.if_else(pa.array(found), pa.scalar(None, pa.string()), texts)
            else:
                break
        return pa.array(found)


@dataclass(frozen=True)
class _ParsedCells:
    """The function that runs in tasks: the values of texts that Spark's cast does not know."""

    hive_type: HiveType
    spark: DataType

    def __call__(self, texts: pa.Array) -> pa.Array:
        return from_cells(texts.cast(pa.string()), self.hive_type).cast(to_arrow_type(self.spark))


def _is_cast(hive_type: HiveType) -> bool:
    """Whether Spark makes a value of its text; otherwise Python does."""
    return hive_type.kind not in COMPLEX_KINDS


def _reason(text: str, kind: HiveType) -> str:
    """Why a text does not fit. Spark alone refuses some texts, and then it is not known."""
    try:
        from_cells(pa.array([text], pa.string()), kind)
    except MisfitError as misfit:
        return f": it {misfit.reason}"
    return ""


def _layout(frame: DataFrame) -> dict[str, str]:
    return {f.name.lower(): f.dataType.simpleString() for f in frame.schema.fields}


def _described(layout: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in layout.items())


def _unquoted(name: str) -> Column:
    return sf.when(_field(name) == QUOTED_EMPTY, "").otherwise(_field(name)).alias(name)


def _field(name: str) -> Column:
    return sf.col(quoted(name))


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
        format_name: one of :data:`~mutation_api.read.export.FORMATS`; None for what the name ends in.
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
        format_name: one of :data:`~mutation_api.read.export.FORMATS`; None for what the name ends in.
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
