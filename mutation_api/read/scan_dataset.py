"""ScanDataset: a scan in the form of a dataset of pyarrow, so that DuckDB and others push filters down to it.

DuckDB, Polars (``scan_pyarrow_dataset``) and other programs that take a ``pyarrow.dataset.Dataset`` ask it
for columns and a filter, and get a stream. Both are passed on to the scan, so only stripes that may have such
rows are read, and the stream holds a limited number of rows in memory.

pyarrow's own class is a handle of a C++ object. This subclass has none, so it overrides all methods: those of
the C++ object would read invalid memory. Lance's dataset does the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from mutation_api.errors import ConfigurationError
from mutation_api.format.event import ROW_ID_COLUMN

_REFUSED = (
    "get_fragments",
    "join",
    "join_asof",
    "partition_expression",
    "replace_schema",
    "sort_by",
    "take",
)
"""Members of a dataset that need its files, or the numbers of its rows."""


class _Scan(Protocol):
    """The members of a ``TableScan`` that a dataset uses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def where(self) -> pc.Expression | str | None: ...
    @property
    def limit(self) -> int | None: ...
    @property
    def schema(self) -> pa.Schema: ...
    def to_arrow(self) -> pa.Table: ...
    def to_arrow_batch_reader(self) -> pa.RecordBatchReader: ...
    def count(self) -> int: ...


class ScanDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow's class has no types
    """A scan as a dataset. Made by ``TableScan.to_dataset``. It reads while the scan's snapshot is open.

    Args:
        scan: the scan. It has no limit.

    Raises:
        ConfigurationError: If the scan has a limit, because a filter would then be applied before it.
    """

    def __init__(self, scan: _Scan) -> None:
        if scan.limit is not None:
            raise ConfigurationError(
                f"{scan!r}: a dataset would apply filters before the limit: leave it out, and use head() or "
                "LIMIT"
            )
        self._scan = scan

    def __repr__(self) -> str:
        """Return the scan."""
        return f"ScanDataset({self._scan!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the snapshot is open in this process only."""
        raise TypeError("a dataset of a scan cannot be pickled: open a snapshot in the other process")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the scan."""
        return self._scan.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: object
    ) -> _Scanner:
        """Return a scanner of some columns of the rows that meet a condition.

        Args:
            columns: names of columns of the dataset, in the desired order. If None, all.
            filter: an Arrow expression over columns of the table.

        Other arguments of ``pyarrow.dataset.Dataset.scanner`` are accepted and not used: memory and threads
        are those of the scan.
        """
        scan = self._scan
        names = scan.schema.names if columns is None else list(columns)
        wanted = [name for name in names if name != ROW_ID_COLUMN]
        where = scan.where
        if filter is not None and where is not None:
            filter = (pc.field(where.lower()) if isinstance(where, str) else where) & filter
        where = where if filter is None else filter
        row_ids = ROW_ID_COLUMN in names
        return _Scanner(dataclasses.replace(scan, columns=wanted, where=where, row_ids=row_ids), names)

    def filter(self, expression: pc.Expression) -> ScanDataset:
        """Return a dataset of the rows that also meet a condition."""
        where = self.scanner(filter=expression).scan.where
        return ScanDataset(dataclasses.replace(self._scan, where=where))

    def to_table(self, columns: Any = None, filter: Any = None, **options: object) -> pa.Table:
        """Return rows as a table; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self, columns: Any = None, filter: Any = None, **options: object
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: object) -> pa.Table:
        """Return the first rows; see :meth:`scanner`."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: object) -> int:
        """Return the number of rows that meet a condition."""
        return self.scanner(None, filter, **options).count_rows()


class _Scanner(pyarrow.dataset.Scanner):  # type: ignore[misc]  # pyarrow's class has no types
    """Reads some columns of the rows that meet a condition. ``names`` are the columns, in order."""

    def __init__(self, scan: _Scan, names: Sequence[str]) -> None:
        self.scan = scan
        self._names = list(names)

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.schema([self.scan.schema.field(name) for name in self._names])

    @property
    def dataset_schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.projected_schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for batch in self.scan.to_arrow_batch_reader():
            yield batch.select(self._names)

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return self.scan.to_arrow().select(self._names)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        return _Scanner(dataclasses.replace(self.scan, limit=num_rows), self._names).to_table()

    def count_rows(self) -> int:
        """Return the number of rows."""
        return self.scan.count()


def _refuse(name: str) -> Any:
    def refused(self: object, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            f"a dataset of a Hive table has no {name}: use its scanner, to_batches or to_table, or "
            "to_arrow() of the scan"
        )

    return property(refused) if name == "partition_expression" else refused


for _name in _REFUSED:
    setattr(ScanDataset, _name, _refuse(_name))
for _name in ("scan_batches", "take"):
    setattr(_Scanner, _name, _refuse(_name))
