"""A table as a lazy frame of Polars, which reads only the columns and stripes that a query needs.

Polars passes columns, a condition and a number of rows to an IO source (``polars.io.plugins``), which must
apply them. The condition is an expression of Polars. Polars itself converts it for datasets of pyarrow, so it
is asked by way of a dataset without rows. The result only leaves out stripes and rows early. Polars then
applies its own expression to what is left, so its rules decide.

The converted condition must keep every row that Polars keeps. It is therefore not used if it reads
floating-point numbers (for Polars, NaN is equal to itself and greater than others), or if the expression
mentions NULL as a value (Polars drops it from sets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from mutation_api.errors import RecordLayoutError
from mutation_api.format.plain_array import has_union
from mutation_api.hive.hive_transaction import HiveSnapshot
from mutation_api.read.table_view import optional_package
from mutation_api.table.evaluation import columns_read

if TYPE_CHECKING:
    import polars as pl


def lazy_frame(snapshot: Callable[[], HiveSnapshot], name: str, schema: pa.Schema) -> pl.LazyFrame:
    """Return a lazy frame that reads a table each time it is collected::

        frame = hive.scan_polars("web.visits")
        frame.filter(pl.col("day") == "2024-05-01").select("user").collect()

    Args:
        snapshot: returns a snapshot of the table.
        name: ``database.table``.
        schema: the columns of the table.

    Raises:
        ConfigurationError: If Polars is not installed.
        RecordLayoutError: If a column has unions, which Polars does not support.
    """
    polars = optional_package("polars", "scan_polars()")
    from polars.io.plugins import register_io_source  # Polars is optional

    if unions := [field.name for field in schema if has_union(field.type)]:
        raise RecordLayoutError(f"table {name}: Polars does not support Arrow unions, as in {unions}")

    def frames(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        with snapshot() as view:
            where = None
            if predicate is not None and n_rows is None:  # rows are counted before the condition
                where = pushed_condition(predicate, schema)
            scan = view.table(name).scan(with_columns, where, limit=n_rows)
            for batch in scan.to_arrow_batch_reader():
                frame: pl.DataFrame = polars.from_arrow(batch)
                yield frame if predicate is None else frame.filter(predicate)

    frame_schema = polars.from_arrow(schema.empty_table()).schema
    frame: pl.LazyFrame = register_io_source(frames, schema=frame_schema, explain_name=f"HIVE {name}")
    return frame


def pushed_condition(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that holds for at least the rows for which an expression of Polars holds.

    None if Polars cannot convert it, or if it may not hold for such a row.
    """
    if "null" in str(predicate):
        return None
    polars = optional_package("polars", "scan_polars()")
    names = dict.fromkeys(predicate.meta.root_names())
    empty = _Empty(pa.schema([schema.field(name) for name in names]))
    polars.scan_pyarrow_dataset(empty).filter(predicate).collect()
    if empty.filter is None:
        return None
    read = columns_read(empty.filter, schema, "a condition of Polars")
    return None if any(_has_floats(schema.field(name).type) for name in read) else empty.filter


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))


class _Empty(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow's class has no types
    """A dataset without rows. ``filter`` is the last filter that it was asked for."""

    def __init__(self, schema: pa.Schema) -> None:
        self._empty = schema.empty_table()
        self.filter: pc.Expression | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._empty.schema

    def to_batches(self, **asked: Any) -> Iterator[pa.RecordBatch]:
        """Yield nothing."""
        self.filter = asked.get("filter")
        columns = asked.get("columns")
        return iter(self._empty.select(self.schema.names if columns is None else columns).to_batches())

    def to_table(self, **asked: Any) -> pa.Table:
        """Return no rows."""
        return pa.Table.from_batches(list(self.to_batches(**asked)), self.schema)
