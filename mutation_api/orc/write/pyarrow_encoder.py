"""PyarrowEncoder: the fast encoder. For zlib, :mod:`.file_compressor` does the compression."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc

from mutation_api.acid.row_id import RowIdArrays
from mutation_api.orc.write.encoder_settings import BATCH_ROWS, COMPRESSION_BLOCK_BYTES, ROW_INDEX_STRIDE
from mutation_api.orc.write.file_compressor import FileCompressor
from mutation_api.orc.write.key_log import KeyLog
from mutation_api.orc.write.tail_holding_sink import TailHoldingSink
from mutation_api.table.writer_options import ZLIB
from mutation_api.types.plain_array import struct_fields

__all__ = ["PyarrowEncoder"]

_CODECS = {
    ZLIB: "UNCOMPRESSED",
    "snappy": "SNAPPY",
    "lz4": "LZ4",
    "zstd": "ZSTD",
    "none": "UNCOMPRESSED",
}
_DICTIONARY_THRESHOLD = 0.8
"""Java's default. Measured: 1 M strings of 300 values shrink to 58 %; unique ones cost nothing extra."""
_ALL_DIFFERENT = 0.98
"""Share of distinct values among the first texts of a file; 10,000 drawn from 250,000 have this share."""
_FEW_ROWS = 500
"""Fewer rows say too little about texts. They wait for those that follow. A file with so few has no
dictionary, with which it would take three times as long to encode."""


class PyarrowEncoder:
    """pyarrow's ORC writer over a sink; ``keys`` records each row at which it may end a stripe.

    These are every BATCH_ROWS-th row of a write, and its last row.
    """

    def __init__(self, sink: TailHoldingSink, schema: pa.Schema, compression: str, stripe_bytes: int) -> None:
        self.keys = KeyLog()
        self._compressor = (
            FileCompressor(sink, schema, COMPRESSION_BLOCK_BYTES) if compression == ZLIB else None
        )
        self._sink = self._compressor or sink
        self._schema = schema
        self._compression = compression
        self._stripe_bytes = stripe_bytes
        self._rows = 0
        self._waiting: list[pa.Table] = []
        """The first few rows."""
        self._writer: pa.orc.ORCWriter | None = None

    def write(self, table: pa.Table, keys: RowIdArrays) -> None:
        """Append rows of the schema, and record the ROW__IDs at which a stripe may end."""
        count = table.num_rows
        if self._writer is not None:
            self._writer.write(table)
        else:
            self._waiting.append(table)
            if self._rows + count >= _FEW_ROWS:
                self._begin()
        ends = np.append(np.arange(BATCH_ROWS, count, BATCH_ROWS), count)
        self.keys.note(self._rows + ends, keys.take(ends - 1))
        self._rows += count

    def close(self) -> None:
        """Write the last stripe and the tail; without rows, an empty file."""
        if self._writer is None:
            # without a write, the file would lack even a tail
            self._waiting = self._waiting or [self._schema.empty_table()]
            self._begin()
        assert self._writer is not None
        self._writer.close()
        if self._compressor is not None:
            self._compressor.finish()

    def _begin(self) -> None:
        """Open the file, and write the rows that wait."""
        waiting, self._waiting = self._waiting, []
        first = pa.concat_tables(waiting).combine_chunks() if len(waiting) > 1 else waiting[0]
        self._writer = pa.orc.ORCWriter(
            pa.PythonFile(self._sink, mode="w"),
            batch_size=BATCH_ROWS,
            stripe_size=self._stripe_bytes,
            compression=_CODECS[self._compression],
            compression_block_size=COMPRESSION_BLOCK_BYTES,
            row_index_stride=ROW_INDEX_STRIDE,
            dictionary_key_size_threshold=_DICTIONARY_THRESHOLD if _repeats_texts(first) else 0.0,
        )
        for table in waiting:
            self._writer.write(table)


def _repeats_texts(table: pa.Table) -> bool:
    """Whether the encoder should try dictionaries; it gives up after ROW_INDEX_STRIDE rows.

    Files with fewer rows pay for the whole attempt (measured: 0.5 s for a million distinct texts).
    """
    if table.num_rows < _FEW_ROWS:
        return False
    arrays = [column.chunk(0) for column in table.slice(0, ROW_INDEX_STRIDE).columns]
    fields = [field for a in arrays for field in (struct_fields(a) if pa.types.is_struct(a.type) else [a])]
    is_nested = any(pa.types.is_nested(field.type) for field in fields)
    return is_nested or any(_may_repeat(field) for field in fields if pa.types.is_string(field.type))


def _may_repeat(texts: pa.StringArray) -> bool:
    count: int = len(texts) - texts.null_count
    distinct: int = pc.count_distinct(texts).as_py()
    return distinct < _ALL_DIFFERENT * count
