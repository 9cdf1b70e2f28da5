"""Bloom filters of written files: where they are, and that the files stay sound."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyorc
import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.hive.connect import connect
from mutation_api.upkeep import verify_table

NAME = "default.t"


def filters_in(file: Path) -> set[tuple[int, ...]]:
    """The columns with filters, of each stripe."""
    with file.open("rb") as stream:
        reader = pyorc.Reader(stream)
        return {reader.read_stripe(n).bloom_filter_columns for n in range(reader.num_of_stripes)}


@pytest.mark.parametrize("codec", ["ZLIB", "SNAPPY", "NONE"])
@pytest.mark.parametrize("encoder", ["pyarrow", "pyorc"])
def test_deltas_have_filters_and_delete_deltas_none(tmp_path: Path, codec: str, encoder: str) -> None:
    """Both encoders, compressed afterwards or by the encoder; `verify` finds nothing wrong."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    with connect(metastore) as hive:
        hive.create_table(
            NAME,
            "id bigint, s string, t timestamp",
            properties={"orc.bloom.filter.columns": "s,id", "orc.compress": codec},
        )
        at = pa.scalar(-1_500_000 if encoder == "pyorc" else 0, pa.timestamp("us"))
        ids = pa.array(range(30_000), pa.int64())
        hive.table(NAME).append(
            pa.table({"id": ids, "s": ids.cast(pa.string()), "t": pa.repeat(at, len(ids))})
        )
        hive.table(NAME).delete(where="id < 10")
        with hive.snapshot(NAME) as view:
            location = view.table(NAME).descriptor.location
            assert view.table(NAME).scan(where="s = '777'").count() == 1
        root = Path(location.local_path or "")
        (rows,), (deletes,) = root.glob("delta_*/bucket_00000"), root.glob("delete_delta_*/bucket_00000")
        assert filters_in(rows) == {(7, 8)}
        assert filters_in(deletes) == {()}
        assert not verify_table(metastore, NAME).findings
