"""The bytes of a file of text, unpacked if its name tells that it is packed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from mutation_api.errors import ConfigurationError, LocalEngineError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location

__all__ = ["opened_text"]

_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_UNKNOWN = (".deflate", ".lz4", ".snappy", ".xz", ".zip")
_READ_BYTES = 4 * 1024 * 1024


@contextmanager
def opened_text(file: Location) -> Iterator[io.BufferedReader]:
    """The bytes of a file.

    Raises:
        ConfigurationError: the storage cannot be read, here or in the block.
        LocalEngineError: it is packed otherwise.
    """
    name = file.name.lower()
    if name.endswith(_UNKNOWN):
        raise LocalEngineError(f"{file.shown}: only {', '.join(_PACKED)} are unpacked without Spark")
    codec = next((codec for ending, codec in _PACKED.items() if name.endswith(ending)), None)
    try:
        with storage_at(file).open_input(file) as stream:
            plain = stream if codec is None else pa.CompressedInputStream(stream, codec)
            with io.BufferedReader(plain, _READ_BYTES) as text:
                yield text
    except OSError as error:
        raise ConfigurationError(f"{file.shown} cannot be read: {error}") from error
