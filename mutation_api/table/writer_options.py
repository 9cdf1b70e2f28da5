"""WriterOptions: user settings for the files that a job writes. They travel from the driver to the tasks."""

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
"""The stripe size of Hive's own writer for deltas (64 MiB / ``orc.base.delta.ratio``)."""
BATCH_ROWS_DEFAULT = 10_000
"""Rows that a coordinator collects from single records before it encodes them."""
SORT_MEMORY_BYTES_DEFAULT = 128 * 1024 * 1024
"""In addition a Python worker needs about 150 MiB and a stripe."""
SORT_MEMORY_BYTES_MAX = 2**31
"""Arrow's arrays of texts safely hold at most half of it."""
ZLIB = "zlib"
"""Hive's codec if the table does not set one."""
COMPRESSIONS = (ZLIB, "snappy", "lz4", "zstd", "none")
"""Codecs that pyarrow and pyorc both write; ``AcidVersion.compressions`` says which ones a release reads."""


@dataclass(frozen=True)
class WriterOptions:
    """Settings of the files that are written.

    Attributes:
        stripe_bytes: size at which a stripe is closed (with zlib, the size before compression); it also
            bounds the memory of a writer.
        batch_rows: rows per batch in which single records are encoded.
        compression: one of COMPRESSIONS, or None for the table's own.
        sort_memory_bytes: memory in which a Spark task sorts its changes, at most SORT_MEMORY_BYTES_MAX. The
            rest is spilled to the executor's local disk. A coordinator ignores it.
    """

    stripe_bytes: int = STRIPE_BYTES_DEFAULT
    batch_rows: int = BATCH_ROWS_DEFAULT
    compression: str | None = None
    sort_memory_bytes: int = SORT_MEMORY_BYTES_DEFAULT

    def __post_init__(self) -> None:
        """Raise ConfigurationError if a setting is out of range."""
        if self.stripe_bytes < 1 or self.batch_rows < 1:
            raise ConfigurationError(
                f"stripe_bytes ({self.stripe_bytes}) and batch_rows ({self.batch_rows}) must be 1 or more"
            )
        if not 1 <= self.sort_memory_bytes <= SORT_MEMORY_BYTES_MAX:
            raise ConfigurationError(
                f"sort_memory_bytes ({self.sort_memory_bytes}) must be in 1 to {SORT_MEMORY_BYTES_MAX}"
            )
        if self.compression is not None and self.compression.lower() not in COMPRESSIONS:
            codecs = ", ".join(COMPRESSIONS)
            raise ConfigurationError(f"compression {self.compression!r} is not one of {codecs}")
