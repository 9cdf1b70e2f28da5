"""RowFilter: the condition of a scan. It excludes partitions and stripes without matching rows, and rows.

Arrow can simplify a condition if something is known about its columns: a dataset drops the fragments for
which the condition cannot hold. Here each partition is such a fragment, whose partition columns are constant,
and each stripe, whose columns have the ranges that the file's writer recorded, or are NULL. No other parts of
files are read for this.

The columns of the condition are read first. The others are read only from stripes with a row that meets it
(:class:`InPartition`). Deleted rows and those of aborted transactions are not yet left out then. If a value
cannot be computed for one of the rows, all rows of the stripe are read, and the visible ones decide.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
from numpy.typing import NDArray

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.orc.format.stored_values import Range
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.evaluation import (
    bindable,
    char_paths,
    check_no_padded_texts,
    checked_expression,
    columns_read,
    evaluate,
    is_too_narrow,
    named_column,
    result_type,
)
from mutation_api.table.expression_parts import EQUAL, Required, expression_text, required
from mutation_api.table.partition import partition_scalars

_COLUMNS_WITH_NULLS_APART = 4
"""Up to so many columns of a stripe, each combination of range and NULL is examined alone. Arrow decides more
conditions then, such as ``(x == 1) | (y == 2)``."""


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
        kept = self.possible(known)
        return [name for at, name in enumerate(listed) if at in kept]

    def in_partition(self, name: str) -> InPartition | None:
        """Return the condition on the rows of a partition; None if it reads no data columns."""
        keys = [key for key in self.table.partition_keys if key.name in self.columns]
        if len(keys) == len(self.columns):
            return None
        return InPartition(self, partition_scalars(self.table, name, keys))

    def possible(self, known: Sequence[pc.Expression]) -> frozenset[int]:
        """Return the indices of what is known that does not rule out the condition.

        Raises:
            RecordValueError: If the condition cannot be computed for constant values.
        """
        from pyarrow import dataset  # it imports pandas, if that is installed

        fragments = dataset.FileSystemDataset.from_paths(
            [str(at) for at in range(len(known))],
            schema=self.schema,
            format=dataset.OrcFileFormat(),
            filesystem=pyarrow.fs.LocalFileSystem(),
            partitions=known,
        )
        try:
            return frozenset(int(fragment.path) for fragment in fragments.get_fragments(self.expression))
        except pa.ArrowInvalid as error:
            if is_too_narrow(error):
                return frozenset(range(len(known)))
            raise self._without_value(error) from error

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
        met = self.values(pa.RecordBatch.from_arrays(columns or batch.columns, schema=schema))
        return batch if met.true_count == len(met) else batch.filter(met)

    def values(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return the condition's value for each row. Raises RecordValueError like :meth:`rows`."""
        try:
            return evaluate(self.expression, pa.Table.from_batches([rows]))
        except pa.ArrowInvalid as error:
            raise self._without_value(error) from error

    @functools.cached_property
    def known_comparisons(self) -> Required:
        """The comparisons of columns with constants of the same type that must be true."""
        given = required(self.expression)
        found = []
        for name, kind, values in given.comparisons:
            column = self.schema.field(name).type
            are_integers = pa.types.is_integer(values.type) and pa.types.is_integer(column)
            if values.type == column or are_integers:
                found.append((name, kind, values))
        return Required(found, given.is_all and len(found) == len(given.comparisons))

    @functools.cached_property
    def bounds(self) -> tuple[_Bound, ...]:
        """Values of columns, which are faster to check than what Arrow concludes from the whole condition."""
        return tuple(
            _Bound.of(name, kind, values)
            for name, kind, values in self.known_comparisons.comparisons
            if len(values) and any(test(values.type) for test in _WITH_BOUNDS)
        )

    @functools.cached_property
    def is_bounds(self) -> bool:
        """True if Arrow cannot rule out more than the bounds do."""
        known = self.known_comparisons
        return known.is_all and len(self.bounds) == len(known.comparisons)

    def _without_value(self, error: Exception) -> RecordValueError:
        return RecordValueError(
            f"table {self.table.full_name}: the filter {expression_text(self.expression)} has no value for "
            f"a row: {error}"
        )


@dataclass(frozen=True)
class InPartition:
    """The condition on the rows of one partition, as a ``RowChoice`` of the reader.

    Attributes:
        where: the condition.
        constants: the values of the partition columns that it reads.
    """

    where: RowFilter
    constants: Mapping[str, pa.Scalar]

    @property
    def names(self) -> tuple[str, ...]:
        """The data columns that the condition reads."""
        return tuple(name for name in self.where.columns if name not in self.constants)

    @property
    def is_read_first(self) -> bool:
        """True: conditions often choose few rows."""
        return True

    def find(self, arrays: Sequence[pa.Array]) -> NDArray[np.int64]:
        """Return the indices of rows, ascending: at least of those that meet the condition."""
        count = len(arrays[0])
        given = dict(zip(self.names, arrays, strict=True))
        given |= {name: pa.repeat(value, count) for name, value in self.constants.items()}
        columns = [given[name] for name in self.where.columns]
        try:
            met = self.where.values(pa.RecordBatch.from_arrays(columns, schema=self.where.schema))
        except RecordValueError:
            return np.arange(count)
        return np.flatnonzero(pc.fill_null(met, False).to_numpy(zero_copy_only=False))

    def may_hold(self, ranges: Sequence[Mapping[str, Range]]) -> Sequence[bool]:
        """Return which parts of a file may hold rows that meet the condition; see ``RowChoice.may_hold``."""
        found = [all(bound.may_be_in(each) for bound in self.where.bounds) for each in ranges]
        if self.where.is_bounds:
            return found
        left = [at for at, is_possible in enumerate(found) if is_possible]
        constants = [_equals(*each) for each in self.constants.items()]
        known = [[_all_of([*constants, *case]) for case in self._cases(ranges[at])] for at in left]
        try:
            possible = self.where.possible([case for cases in known for case in cases])
        except RecordValueError:  # the rows decide whether it can be computed
            return [True] * len(ranges)
        ends = [0, *itertools.accumulate(map(len, known))]
        for at, part in zip(left, itertools.pairwise(ends), strict=True):
            found[at] = not possible.isdisjoint(range(*part))
        return found

    def equal_values(self) -> Mapping[str, pa.Array]:
        """Return the values of data columns in ``==`` and ``isin``; see ``RowChoice.equal_values``."""
        known = self.where.known_comparisons.comparisons
        return {n: values for n, kind, values in known if kind in EQUAL and n not in self.constants}

    def _cases(self, ranges: Mapping[str, Range]) -> list[tuple[pc.Expression, ...]]:
        """Return what may be known about the columns of a part: one of several cases."""
        bounds = []
        for name, ends in ranges.items():
            field = pc.field(name)
            low, high = (_scalar(end, self.where.schema.field(name).type) for end in ends)
            if low is not None and high is not None:
                bounds.append((field >= low, field <= high, field.is_null()))
        if len(bounds) > _COLUMNS_WITH_NULLS_APART:
            return [tuple((low | null) & (high | null) for low, high, null in bounds)]
        return list(itertools.product(*((low & high, null) for low, high, null in bounds)))


class _Bound(NamedTuple):
    """A column, and the values that it can have, in the form of a Range.

    Attributes:
        name: the column.
        least: the least value; None if there is no such limit.
        largest: the largest value; None if there is no such limit.
        values: all values, ascending; empty if all between the limits are meant.
    """

    name: str
    least: Any
    largest: Any
    values: Sequence[Any]

    @classmethod
    def of(cls, name: str, kind: str, values: pa.Array) -> _Bound:
        """Return the bounds by a comparison of :func:`required`."""
        plain = values.cast(pa.binary()) if pa.types.is_string(values.type) else values
        found = sorted((plain.view(pa.int32()) if pa.types.is_date32(plain.type) else plain).to_pylist())
        least = None if kind.startswith("less") else found[0]
        largest = None if kind.startswith("greater") else found[-1]
        return cls(name, least, largest, found if kind in EQUAL else ())

    def may_be_in(self, ranges: Mapping[str, Range]) -> bool:
        """Return True if a part with these ranges may have such a value."""
        if self.name not in ranges:
            return True
        low, high = ranges[self.name]
        if (self.largest is not None and low > self.largest) or (
            self.least is not None and high < self.least
        ):
            return False
        return not self.values or bool(self.values[bisect.bisect_left(self.values, low)] <= high)


_WITH_BOUNDS = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_decimal128)


def _scalar(value: int | Decimal | bytes, kind: pa.DataType) -> pa.Scalar | None:
    """Return a bound of a range as a value of a column; None if the column cannot hold it."""
    try:
        if pa.types.is_date(kind):
            return pa.scalar(value, pa.int32()).cast(kind)
        return pa.scalar(value.decode() if isinstance(value, bytes) else value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeDecodeError):
        return None


def _equals(name: str, value: pa.Scalar) -> pc.Expression:
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()


def _all_of(conditions: Sequence[pc.Expression]) -> pc.Expression:
    return functools.reduce(lambda left, right: left & right, conditions, pc.scalar(True))
