"""RowFilter: the condition of a scan. It excludes partitions without matching rows, and rows that do not
match.

Arrow can simplify a condition if some of its columns are constant: a dataset drops the fragments for which
the condition cannot hold. Here each partition is such a fragment. No files are read for this.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import lazy_loader
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.evaluation import (
    bindable,
    checked_expression,
    columns_read,
    evaluate,
    is_too_narrow,
    named_column,
    result_type,
)
from mutation_api.table.expression_parts import char_paths, check_no_padded_texts, expression_text
from mutation_api.table.partition import partition_scalars

__all__ = ["RowFilter"]

dataset = lazy_loader.load(
    "pyarrow.dataset", suppress_warning=True
)  # lazy for the same reason as in expressions/evaluation.py


@dataclass(frozen=True)
class RowFilter:
    """A condition on the rows of a table, made by :meth:`of`.

    Attributes:
        table: the table.
        expression: the condition. A row for which it is null does not meet it.
        schema: the columns of the table that it reads, with the types in which the scan reads them.
    """

    table: AcidTable
    expression: pc.Expression
    schema: pa.Schema

    @classmethod
    def of(cls, given: pc.Expression | str, table: AcidTable, schema: pa.Schema) -> RowFilter:
        """Check a condition.

        Args:
            given: an Arrow expression, or the name of a boolean column (in any case).
            table: the table.
            schema: its data and partition columns, with the types in which they are read.

        Raises:
            RecordLayoutError: If a column does not exist, a function does not accept these types, columns are
                given by their number, or the values are not boolean.
        """
        what = f"table {table.full_name}: the filter"
        if isinstance(given, str):
            given = pc.field(named_column(given, schema.names, what))
        given = checked_expression(given, what)
        found = result_type(given, schema, what)
        check_no_padded_texts(given, char_paths({c.name: c.type for c in table.all_columns}), what)
        if not pa.types.is_boolean(found):
            raise RecordLayoutError(
                f"{what} {expression_text(given)} gives {found}; it must be true or false for each row"
            )
        names = columns_read(given, schema, what)
        read = pa.schema([field for field in schema if field.name in names])
        return cls(table, bindable(given, read) if names else given, read)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that the condition reads."""
        return tuple(self.schema.names)

    def partitions(self, names: Iterable[str]) -> list[str]:
        """Return the partitions (escaped names) that may have rows that meet the condition, in their order.

        Raises:
            RecordValueError: If a partition's string cannot be parsed as its column's type.
        """
        listed = list(names)
        wanted = [key for key in self.table.partition_keys if key.name in self.columns]
        if not wanted:
            return listed
        known = [
            _all_of([_equals(*each) for each in partition_scalars(self.table, name, wanted).items()])
            for name in listed
        ]
        fragments = dataset.FileSystemDataset.from_paths(
            [str(at) for at in range(len(listed))],
            schema=self.schema,
            format=dataset.OrcFileFormat(),
            filesystem=pyarrow.fs.LocalFileSystem(),
            partitions=known,
        )
        try:
            kept = {int(fragment.path) for fragment in fragments.get_fragments(self.expression)}
        except pa.ArrowInvalid as error:
            if is_too_narrow(error):
                return listed
            raise self._without_value(error) from error
        return [name for at, name in enumerate(listed) if at in kept]

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that meet the condition.

        Args:
            batch: rows whose columns include :attr:`columns`.

        Raises:
            RecordValueError: If the condition cannot be computed for a row (division by zero, overflow).
        """
        columns = [batch.column(name) for name in self.columns]
        # A table without columns has no rows. The condition is then a constant, and any column will do.
        schema = self.schema if columns else batch.schema
        read = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns or batch.columns, schema=schema)])
        try:
            met = evaluate(self.expression, read)
        except pa.ArrowInvalid as error:
            raise self._without_value(error) from error
        return batch if met.true_count == len(met) else batch.filter(met)

    def _without_value(self, error: Exception) -> RecordValueError:
        return RecordValueError(
            f"table {self.table.full_name}: the filter {expression_text(self.expression)} has no value for "
            f"a row: {error}"
        )


def _equals(name: str, value: pa.Scalar) -> pc.Expression:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()


def _all_of(conditions: list[pc.Expression]) -> pc.Expression:
    return functools.reduce(lambda left, right: left & right, conditions)
