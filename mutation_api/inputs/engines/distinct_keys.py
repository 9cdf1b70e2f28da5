"""DistinctKeys: whether the rows of a copy have different keys, found in bounded memory.

Keys are sorted by a hash, through files if they are many; those that share it are compared. In the source
they are different; they may be equal in Hive, as 'a' and 'a ' are in a column of type char.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.bucketing.bucket_hash import hash_columns
from mutation_api.changes.duplicates import DUPLICATES_SHOWN_DEFAULT, copied_keys_error
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.errors import RecordLayoutError
from mutation_api.inputs.source import SourceTable
from mutation_api.local.local_options import LocalOptions
from mutation_api.table.writer_options import SORT_MEMORY_BYTES_MAX
from mutation_api.types.hive_type import parse_hive_type
from mutation_api.types.plain_array import plain_array
from mutation_api.worker.batch_sorter import BatchSorter, KeyParts

__all__ = ["DistinctKeys"]

SORTING_PART = 4
"""One part in SORTING_PART of the memory is for sorting keys."""

_HASH = "__hash"
_HASH_VERSION = 2
_COUNT = "__count"


class DistinctKeys:
    """Takes the rows of a copy, in any order; as a context manager it removes its files.

    Args:
        table: the table and its key.
        local: its memory bounds the keys that are held.
        what: names the copy in messages.
    """

    def __init__(self, table: SourceTable, local: LocalOptions, what: str) -> None:
        self._table = table
        self._what = what
        types = {column.name.lower(): column.type for column in table.target.all_columns}
        self._types = [parse_hive_type(types[name]) for name in table.key if name in types]
        memory = min(local.memory_bytes // SORTING_PART, SORT_MEMORY_BYTES_MAX)
        self._sorter = BatchSorter(table.target.full_name, _hash_of, memory)

    def __enter__(self) -> Self:
        """Return itself."""
        self._sorter.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Remove the files."""
        self._sorter.__exit__(*exc_info)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows, which have columns in lower case.

        Raises:
            RecordLayoutError: a key column is missing, or its values cannot be compared.
            DeltaWriteError: keys could not be written to a temporary file.
        """
        unknown = [name for name in self._table.key if name not in rows.schema.names]
        if unknown or len(self._types) < len(self._table.key):
            raise RecordLayoutError(
                f"the operations have no column {', '.join(unknown or self._table.key)}; they have "
                f"{', '.join(rows.schema.names)}"
            )
        keys = [plain_array(rows.column(name)) for name in self._table.key]
        for name, column in zip(self._table.key, keys, strict=True):
            if pa.types.is_nested(column.type):
                raise RecordLayoutError(
                    f"key column {name!r} is of type {column.type}, whose values cannot be compared without "
                    "Spark"
                )
        hashes = hash_columns(keys, self._types, _HASH_VERSION)
        self._sorter.add(pa.record_batch([pa.array(hashes), *keys], names=[_HASH, *self._table.key]))

    def check(self) -> None:
        """Raise DuplicateKeyError if two rows have one key; DeltaWriteError: a temporary file is lost."""
        count = 0
        samples: list[str] = []
        for rows in _sharing(self._sorter.in_order()):
            keys = pa.table(rows).select(list(self._table.key))
            counted = keys.group_by(list(self._table.key)).aggregate([([], "count_all")])
            doubled = counted.filter(pc.greater(counted["count_all"], 1)).drop_columns(["count_all"])
            count += doubled.num_rows
            some = doubled.slice(0, DUPLICATES_SHOWN_DEFAULT - len(samples))
            samples += json_texts(some.to_struct_array().combine_chunks()) if some.num_rows else []
        if count:
            raise copied_keys_error(self._what, self._table.target.full_name, count, samples)


def _hash_of(batch: pa.RecordBatch) -> KeyParts:
    return [batch.column(_HASH).to_numpy().astype(np.int64)]


def _sharing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that share their hash with another one; all rows of a hash in one batch.

    ``batches`` ascend by hash; a hash may go on in the next one.
    """
    held: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if held is None else pa.concat_batches([held, batch])
        hashes = rows.column(_HASH).to_numpy()
        last = int(np.searchsorted(hashes, hashes[-1], side="left"))
        yield from _doubled(rows.slice(0, last), hashes[:last])
        held = rows.slice(last)
    if held is not None:
        yield from _doubled(held, held.column(_HASH).to_numpy())


def _doubled(rows: pa.RecordBatch, hashes: NDArray[np.int32]) -> Iterator[pa.RecordBatch]:
    is_next = hashes[1:] == hashes[:-1]
    shared: NDArray[np.bool_] = np.zeros(len(hashes), np.bool_)
    shared[1:] |= is_next
    shared[:-1] |= is_next
    if shared.any():
        yield rows.filter(pa.array(shared))
