"""Settings of both encoders of a file."""

from __future__ import annotations

__all__ = ["BATCH_ROWS", "COMPRESSION_BLOCK_BYTES", "ROW_INDEX_STRIDE"]

BATCH_ROWS = 1024
"""A stripe can end only after a multiple of this number of rows; small, to bound the size of wide rows."""
ROW_INDEX_STRIDE = 10_000
"""Rows of a row group, as in Hive's files."""
COMPRESSION_BLOCK_BYTES = 64 * 1024
"""Bytes of a stream that are compressed together; pyarrow does not accept fewer."""
