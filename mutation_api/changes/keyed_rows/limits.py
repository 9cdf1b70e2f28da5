"""How much the local engine takes on; Spark does what is more."""

from __future__ import annotations

from mutation_api.errors import LocalEngineError
from mutation_api.local.local_options import LocalOptions

__all__ = ["READ_BYTES_MAX", "check_memory", "check_read_bytes"]

READ_BYTES_MAX = 256 << 20
"""Size of a table's files up to which one process reads them where Spark could."""


def check_memory(table_name: str, what: str, byte_count: int, local: LocalOptions) -> None:
    """Raise LocalEngineError if ``byte_count`` is more than the engine may hold."""
    if byte_count > local.memory_bytes:
        raise LocalEngineError(
            f"table {table_name}: {what} would take more than the {local.memory_bytes:,} bytes that the "
            "local engine may hold: take several parts, allow more with LocalOptions(memory_bytes=…), or use "
            "Spark"
        )


def check_read_bytes(table_name: str, byte_count: int, most: int) -> None:
    """Raise LocalEngineError if more than ``most`` bytes of files would be read."""
    if byte_count > most:
        raise LocalEngineError(
            f"table {table_name}: {byte_count:,} bytes of its files would be read, and more than {most:,} "
            "are left to Spark"
        )
