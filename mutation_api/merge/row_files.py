"""Files of rows and of changes, read and written by Spark.

Rows in CSV and JSON are read with the table's types. A string that is not a valid value of its column's type
is refused; it never becomes NULL. The message names the column and the row. An empty CSV field is NULL, and a
quoted empty field ("") is the empty string. ORC and Parquet have their own types, which the writer converts.

Spark reads the files. In its tasks, Python converts CSV strings and parses JSON lines by the rules of the
local engine, because Spark's own parsers cut times off dates, round decimals, and read 1e400 as Infinity and
128 for a tinyint as -128.

Spark's configuration determines how files that are not on a local disk are accessed. Spark always gets the
whole location, since it would look for a plain path in ``fs.defaultFS``.

Change sets are those that ``diff`` returns and ``apply_changes`` takes. A file has the operation, ROW__ID and
the table's columns. ROW__ID is a struct; in CSV it is the columns ``ROW__ID.writeid`` and so on. Every value
is read back exactly as it was.
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
from mutation_api.format.hive_type import HiveType, MisfitError, TypeFamily
from mutation_api.format.json_values import from_cells, json_texts, to_cells
from mutation_api.merge.file_rules import (
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

QUOTED_EMPTY = "\x01"
"""A placeholder for "" while CSV is parsed, since Spark does not distinguish "" from an empty field."""


@dataclass(frozen=True)
class RowFiles:
    """A reader of files that hold rows of a table.

    For the fields after ``spark`` see :class:`~mutation_api.merge.file_rules.RowColumns`.
    """

    spark: SparkSession
    table: AcidTable
    others: Mapping[str, str] = field(default_factory=dict)
    has_row_ids: bool = False
    keeps_unknown: bool = False

    def read_all(self, files: Sequence[Location], format_name: str | None = None) -> DataFrame:
        """Read the rows of several files.

        If ``format_name`` is None, it is taken from the file extension.

        Raises:
            RecordLayoutError: If the files differ in columns or types, or see :meth:`read`.
            RecordValueError, ConfigurationError: See :meth:`read`.
        """
        frames = [self.read(file, format_name) for file in files]
        wanted = _layout(frames[0])
        for file, frame in zip(files, frames, strict=True):
            if _layout(frame) != wanted:
                raise RecordLayoutError(
                    f"{file.shown} has the columns {_described(_layout(frame))}, but {files[0].shown} has "
                    f"{_described(wanted)}. All files of a source must have the same columns"
                )
        return reduce(lambda one, other: one.unionByName(other), frames)

    def read(self, file: Location, format_name: str | None = None) -> DataFrame:
        """Read the rows of a file, or of a directory of files with the same format.

        If ``format_name`` is None, it is taken from the file extension.

        Raises:
            RecordLayoutError: If columns are unknown or have a type that the format cannot hold.
            RecordValueError: If values are not valid for their column's type. The message shows some.
            ConfigurationError, WorkerError: If the file cannot be read in this format, or has an extension
                that is not a known format.
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
            .option("enforceSchema", False)  # the files of a directory must have the same header
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
        # An extra pass finds the names, since Spark's own schema drops the columns of empty objects.
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
        # Spark's own parser cuts times, rounds decimals, and reads 128 for a tinyint as -128.
        parse = JsonRows(self._columns, file, to_arrow_schema(schema))
        return lines.mapInArrow(parse.__call__, schema)

    @property
    def _columns(self) -> RowColumns:
        return RowColumns(self.table, self.others, self.has_row_ids, self.keeps_unknown)


def _check_values(columns: RowColumns, file: Location, texts: DataFrame, types: Mapping[str, str]) -> None:
    """Raise RecordValueError if strings are not valid for their column's type, before anything is written."""
    kinds = columns.hive_types()
    checked = [name for name, kind in types.items() if kind != "string"]
    if not checked:
        return
    # Spark's own casts cut times, round decimals, and turn 1e400 into Infinity.
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
            f"{file.shown}, table {columns.table.full_name}: invalid values: {'; '.join(samples)}"
        )


@dataclass(frozen=True)
class _RefusedTexts:
    """The function that runs in tasks and marks invalid strings of a type, at least the first ones."""

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
    """The function that runs in tasks and converts strings that Spark's cast cannot convert."""

    hive_type: HiveType
    spark: DataType

    def __call__(self, texts: pa.Array) -> pa.Array:
        return from_cells(texts.cast(pa.string()), self.hive_type).cast(to_arrow_type(self.spark))


def _is_cast(hive_type: HiveType) -> bool:
    """Return True if Spark casts strings to this type; otherwise Python converts them."""
    return hive_type.family not in (TypeFamily.NESTED, TypeFamily.BINARY)


def _reason(text: str, kind: HiveType) -> str:
    """Return why a string is invalid. If only Spark refuses it, the reason is unknown and the result ''."""
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


_CSV_WRITING: Mapping[str, bool | str] = {
    "header": True,
    "escape": '"',
    "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
}
"""The options of Spark's CSV writer with which every string is read back exactly."""


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
        table: the table that the changes are for.
        file: a file, or a directory of files with the same format.
        format_name: one of :data:`~mutation_api.read.export.FORMATS`. If None, taken from the file
            extension.
        operation_column: name of the operation column.

    Returns:
        A DataFrame for ``apply_changes``.

    Raises:
        RecordLayoutError, RecordValueError, ConfigurationError: See :meth:`RowFiles.read`.
    """
    return RowFiles(spark, table, {operation_column: "string"}, has_row_ids=True).read(file, format_name)


def save_changes(
    changes: DataFrame, file: Location, format_name: str | None = None, *, order: Sequence[str]
) -> None:
    """Write sorted changes into one file. It appears only when it is complete, and replaces an existing file.

    Args:
        changes: operation, ROW__ID and the table's columns.
        file: the file to write. Its directory must exist if the storage has directories.
        format_name: one of :data:`~mutation_api.read.export.FORMATS`. If None, taken from the file
            extension.
        order: names of the columns to sort by.

    Raises:
        ConfigurationError: If the format is unknown.
        ClientError: If the file cannot be written.
    """
    name = file_format(file, format_name)
    # One task sorts and writes. Unlike coalesce, repartition leaves the comparison before it its own tasks.
    rows = changes.repartition(1).sortWithinPartitions(*[quoted(column) for column in order])
    match name:
        case "csv":
            writer = _as_cells(rows).write.format(name).options(**_CSV_WRITING)
        case "json":
            writer = _as_lines(rows).write.format("text")
        case _:
            writer = rows.write.format(name)
    file = without_links(file)
    folder = hidden_beside(file)
    storage = storage_at(file)
    try:
        writer.save(str(folder))
        (part,) = (entry for entry in storage.list(folder) if entry.name.startswith("part-"))
        move_to(part.location, file)
    except OSError as error:
        raise ClientError(f"{file.shown}: cannot write the file: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            storage.delete_directory(folder)


def _as_cells(changes: DataFrame) -> DataFrame:
    """Return the cells of every column, with ROW__ID split into its fields."""
    row_id = changes.schema[ROW_ID_COLUMN].dataType
    assert isinstance(row_id, StructType)
    operation, *others = (name for name in changes.columns if name != ROW_ID_COLUMN)
    fields = {f"{ROW_ID_COLUMN}.{f.name}": sf.col(quoted(ROW_ID_COLUMN, f.name)) for f in row_id.fields}
    columns = {operation: _field(operation), **fields, **{name: _field(name) for name in others}}
    return computed(changes, {n: ArrowColumn(to_cells, "string", (c,)) for n, c in columns.items()})


def _as_lines(changes: DataFrame) -> DataFrame:
    row = sf.struct(*[_field(name) for name in changes.columns])
    return computed(changes, {"value": ArrowColumn(_lines, "string", (row,))})


def _lines(rows: pa.Array) -> pa.Array:
    return pa.array(json_texts(rows), pa.string())
