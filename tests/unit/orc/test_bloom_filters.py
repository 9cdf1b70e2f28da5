"""Bloom filters of written files: where they are, and that the files stay sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyorc
import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.hive.connect import connect
from mutation_api.orc.format.bloom_filters import SoughtValues
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.table.expression_parts import required
from mutation_api.transaction import preconditions
from mutation_api.upkeep import verify_table

NAME = "default.t"


def filters_in(file: Path) -> set[tuple[int, ...]]:
    """The columns with filters, of each stripe."""
    with file.open("rb") as stream:
        reader = pyorc.Reader(stream)
        return {reader.read_stripe(n).bloom_filter_columns for n in range(reader.num_of_stripes)}


@pytest.mark.thorough(1)
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


def test_filters_of_a_tinyint_are_neither_written_nor_read(tmp_path: Path) -> None:
    """ORC's C++ library adds other values than the first eighth of a batch to them. `verify` names one."""
    values = [*range(-5, 95)]
    path = tmp_path / "by_pyarrow.orc"
    with pa.orc.ORCWriter(str(path), bloom_filter_columns=[1, 2], row_index_stride=10_000) as writer:
        writer.write(pa.table({"t": pa.array(values, pa.int8()), "h": pa.array(values, pa.int16())}))
    source = OrcInput(LocalStorage(), Location.given(path), None, ReadOptions())
    assert source.bloom_filters(0, "t", parse_hive_type("tinyint")) == []
    assert source.bloom_filters(0, "t", parse_hive_type("smallint")) == []
    (of_shorts,) = source.bloom_filters(0, "h", parse_hive_type("smallint"))
    assert of_shorts.has(SoughtValues(pa.array(values))).all()
    with connect(InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1)) as hive:
        table = hive.create_table(
            NAME, "id bigint, t tinyint", properties={"orc.bloom.filter.columns": "t,id"}
        )
        table.append(pa.table({"id": values, "t": pa.array(values, pa.int8())}))
        with hive.snapshot(NAME) as view:
            location = view.table(NAME).descriptor.location
        (file,) = Path(location.local_path or "").glob("delta_*/bucket_00000")
        assert filters_in(file) == {(7,)}
        assert not table.verify().findings
    encoded = mock.patch.object(preconditions, "_BLOOM_KINDS", frozenset(["tinyint"]))
    with encoded, connect(InMemoryMetastore(tmp_path / "v", capabilities=HIVE_4_1)) as hive:
        table = hive.create_table(NAME, "id bigint, t tinyint", properties={"orc.bloom.filter.columns": "t"})
        table.append(pa.table({"id": values, "t": pa.array(values, pa.int8())}))
        (finding,) = table.verify().findings
        assert finding.rule_name == "bloom-filter"
        assert "no -5 of column row.t in row group 0" in finding.found


@pytest.mark.thorough
def test_keys_are_looked_up_in_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge finds the rows of each key, and decodes no group for keys that no filter has."""
    decoded: list[int] = []
    read = OrcInput.read_stripe

    def noted(source: OrcInput, index: int, columns: Any, groups: Any = None) -> pa.RecordBatch:
        decoded.append(source.row_groups(index).count if groups is None else len(groups))
        return read(source, index, columns, groups)

    monkeypatch.setattr(OrcInput, "read_stripe", noted)
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    properties = {"orc.bloom.filter.columns": "s", "orc.bloom.filter.fpp": "0.001"}
    with connect(metastore) as hive:
        hive.create_table(NAME, "id bigint, s string", properties=properties)
        texts = [f"text {n * 7919 % 100_003}" for n in range(60_000)]
        hive.table(NAME).append(pa.table({"id": range(60_000), "s": texts}))
        found = hive.table(NAME).upsert(pa.table({"id": [-1], "s": [texts[33_333]]}), on=["s"])
        assert (found.total.updated, found.total.inserted) == (1, 0)
        assert 0 < sum(decoded) < 6
        decoded.clear()
        assert hive.table(NAME).upsert(pa.table({"id": [-2], "s": ["text 5x"]}), on=["s"]).total.inserted == 1
        assert sum(decoded) < 3
        with hive.snapshot(NAME) as view:
            assert view.table(NAME).scan(where="s in ('text 5x', 'none')").to_arrow()["id"].to_pylist() == [
                -2
            ]
            assert view.table(NAME).scan(where="s = 'none' or id = -1").to_arrow()["id"].to_pylist() == [-1]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (pc.field("a") == 5, [("a", "equal", [5])]),
        (pc.scalar("x") == pc.field("b"), [("b", "equal", ["x"])]),
        (
            pc.field("a").isin([1, 2]) & (pc.field("b") > "x"),
            [("a", "is_in", [1, 2]), ("b", "greater", ["x"])],
        ),
        (
            (pc.field("a") == 5) & (pc.scalar(1) <= pc.field("c")),
            [("a", "equal", [5]), ("c", "greater_equal", [1])],
        ),
        ((pc.field("a") == 5) & ~(pc.field("c") > 1), [("a", "equal", [5])]),
        ((pc.field("a") == 5) | (pc.field("b") == "x"), []),
        (~(pc.field("a") == 5), []),
        (pc.field("a") != 5, []),
        (pc.field("a").isin(pa.array([1, None])), []),
        (pc.field("a") == pc.field("c"), []),
        (pc.field("a").cast(pa.string()) == "5", []),
        (pc.field("a") + 1 == 5, []),
        (pc.field("s", "a") == 5, []),
        (pc.scalar(1) == pc.scalar(2), []),
        (pc.if_else(pc.field("a") == 5, pc.field("a") == 5, pc.field("a") == 5), []),
    ],
    ids=str,
)
def test_comparisons_that_a_condition_requires(
    condition: pc.Expression, expected: list[tuple[str, str, list[Any]]]
) -> None:
    found = [(name, kind, values.to_pylist()) for name, kind, values in required(condition).comparisons]
    assert found == expected
