"""ORC files as pyarrow writes them, in memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.orc as orc

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]


def orc_file(codec: str, rows: int = 100, stripe_bytes: int = 64 << 20, batch_rows: int = 1024) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": range(rows), "s": [f"text {i}" for i in range(rows)]})
    with orc.ORCWriter(sink, compression=codec, stripe_size=stripe_bytes, batch_size=batch_rows) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
