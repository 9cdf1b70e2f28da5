"""What both encoders of a file are set to."""

from __future__ import annotations

__all__ = ["BATCH_ROWS", "COMPRESSION_BLOCK_BYTES", "ROW_INDEX_STRIDE"]

BATCH_ROWS = 1024
"""A stripe can end only after so many rows of a write; small, so that wide rows stay in bounds."""
ROW_INDEX_STRIDE = 10_000
"""Rows of a row group, as in Hive's files."""
COMPRESSION_BLOCK_BYTES = 64 * 1024
"""Of a stream that are compressed together; pyarrow takes no fewer."""
