"""Properties of ORC tails: whatever is added comes back, and the rows stay."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
from hypothesis import given, settings
from hypothesis import strategies as st

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.tail import parse_tail
from mutation_api.orc.write.event_writer import append_user_metadata

codecs = st.sampled_from(["uncompressed", "zlib", "snappy", "lz4", "zstd"])
names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=30)
entries = st.dictionaries(names, st.binary(max_size=70_000), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(
    codec=codecs,
    entries=entries,
    rows=st.integers(0, 3000),
    columns=st.integers(1, 40),
    stripe_bytes=st.sampled_from([1, 5000, 1 << 26]),
    block_bytes=st.sampled_from([65536, 262144]),
)
def test_added_metadata_comes_back_and_rows_stay(codec, entries, rows, columns, stripe_bytes, block_bytes):
    """For every codec, width, stripe count and block size pyarrow and pyorc see rows and entries."""
    table = pa.table({f"column_{i}": pa.array(range(i, rows + i), pa.int64()) for i in range(columns)})
    sink = pa.BufferOutputStream()
    with orc.ORCWriter(
        sink, compression=codec, stripe_size=stripe_bytes, compression_block_size=block_bytes, batch_size=64
    ) as writer:
        writer.write(table)
    data = sink.getvalue().to_pybytes()
    before = parse_tail(data)
    extended = append_user_metadata(data, entries, before)
    after = parse_tail(extended)
    assert (after.stripes, after.row_count, after.user_metadata) == (before.stripes, rows, entries)
    file = orc.ORCFile(pa.BufferReader(extended))
    assert file.read().equals(table)
    assert {k.decode(): v for k, v in file.metadata.items()} == entries
    reader = pyorc.Reader(io.BytesIO(extended))
    assert reader.user_metadata == entries
    assert len(reader) == rows


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_with_our_error(data):
    """Damage never surfaces as an IndexError or an endless loop."""
    try:
        parse_tail(data)
    except CorruptFileError:
        return
    raise AssertionError("random bytes were taken for an ORC file")
