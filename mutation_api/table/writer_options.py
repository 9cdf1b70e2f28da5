"""WriterOptions: what a user sets of the files that a job writes; travels from the driver to the tasks."""

from __future__ import annotations

from dataclasses import dataclass

from mutation_api.errors import ConfigurationError

__all__ = [
    "BATCH_ROWS_DEFAULT",
    "COMPRESSIONS",
    "SORT_MEMORY_BYTES_DEFAULT",
    "SORT_MEMORY_BYTES_MAX",
    "STRIPE_BYTES_DEFAULT",
    "ZLIB",
    "WriterOptions",
]

STRIPE_BYTES_DEFAULT = 8 * 1024 * 1024
"""What Hive's own writer uses for deltas (64 MiB / ``orc.base.delta.ratio``)."""
BATCH_ROWS_DEFAULT = 10_000
"""Rows that a coordinator collects from single records before it encodes them."""
SORT_MEMORY_BYTES_DEFAULT = 128 * 1024 * 1024
"""Beside it a Python worker needs about 150 MiB and a stripe."""
SORT_MEMORY_BYTES_MAX = 2**31
"""Half of it is the most that Arrow's arrays of texts surely hold."""
ZLIB = "zlib"
"""Hive's codec where a table names none."""
COMPRESSIONS = (ZLIB, "snappy", "lz4", "zstd", "none")
"""Codecs that pyarrow and pyorc both write; which of them a release reads, its version says."""


@dataclass(frozen=True)
class WriterOptions:
    """Settings of the files that are written.

    Attributes:
        stripe_bytes: a stripe is closed when it has so many bytes, with zlib before they are compressed; also
            bounds the memory of a writer.
        batch_rows: single records are encoded in batches of so many rows.
        compression: one of COMPRESSIONS, or None for the table's own.
        sort_memory_bytes: memory in which a Spark task sorts its changes, at most SORT_MEMORY_BYTES_MAX; what
            does not fit goes to the executor's local disk. Of no account to a coordinator.
    """

    stripe_bytes: int = STRIPE_BYTES_DEFAULT
    batch_rows: int = BATCH_ROWS_DEFAULT
    compression: str | None = None
    sort_memory_bytes: int = SORT_MEMORY_BYTES_DEFAULT

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a setting makes no sense."""
        if self.stripe_bytes < 1 or self.batch_rows < 1:
            raise ConfigurationError(
                f"stripe_bytes ({self.stripe_bytes}) and batch_rows ({self.batch_rows}) must be 1 or more"
            )
        if not 1 <= self.sort_memory_bytes <= SORT_MEMORY_BYTES_MAX:
            raise ConfigurationError(
                f"sort_memory_bytes ({self.sort_memory_bytes}) must be in 1 to {SORT_MEMORY_BYTES_MAX}"
            )
        if self.compression is not None and self.compression.lower() not in COMPRESSIONS:
            raise ConfigurationError(f"compression {self.compression!r} is none of {', '.join(COMPRESSIONS)}")
