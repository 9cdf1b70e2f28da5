"""Positions of groups of rows: what writers record passes, and each other number shows."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.orc.format.run_lengths import RunKind
from mutation_api.read.directory_scan import open_directory
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.row_index_check import RunPlaces
from mutation_api.upkeep.verify.verify import verify_view
from tests.fuzz.orc_cases import WIDE_COLUMNS, wide_rows
from tests.support.orc_parts import message, parts_of, tree_of
from tests.support.orc_stripes import changed_stripe, damaged_row_index


@pytest.fixture(params=["uncompressed", "zlib"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """All types, in groups of 1,000 rows, as plain rows in a table that was made transactional."""
    sink = io.BytesIO()
    table = pa.concat_tables([wide_rows()] * 2)
    orc.write_table(table, sink, compression=request.param, row_index_stride=1000, stripe_size=1 << 26)
    path = tmp_path / "000000_0"
    path.write_bytes(sink.getvalue())
    return path


def _findings(path: Path) -> tuple[Finding, ...]:
    return verify_view(open_directory(path.parent, WIDE_COLUMNS, acid_version="2"), threads=1).findings


@pytest.mark.thorough
def test_positions_of_a_writer_pass_and_others_show(file: Path) -> None:
    """A number that names another byte, run, value or bit; it may also be one that names the same place."""
    assert _findings(file) == ()
    before, seen = file.read_bytes(), 0
    for seed in range(12):
        file.write_bytes(damaged_row_index(random.Random(seed), before))
        seen += any(each.rule_name == "row-index" for each in _findings(file))
    assert seen >= 10


def _changes() -> Iterator[tuple[str, int, int]]:
    yield "an encoding that the type does not have", 2, 1
    yield "a stream of an unknown kind", 1, 99


@pytest.mark.parametrize(("what", "field", "value"), [*_changes()], ids=[what for what, _, _ in _changes()])
def test_what_java_does_not_find_its_way_by(file: Path, what: str, field: int, value: int) -> None:
    """ORC's C++ library ignores it."""

    def change(streams: list[tuple[bytes | None, bytes]]) -> list[tuple[bytes | None, bytes]]:
        *others, (_, rest) = streams
        if field == 1:
            (head, data), *others = others
            assert head is not None
            others = [(message([(1, value), *tree_of(head)[1:]]), data), *others]
            return [*others, (None, rest)]
        fields = tree_of(rest)
        at = next(i for i, (f, _) in enumerate(fields) if f == field)
        fields[at] = (field, message([(1, value)]))
        return [*others, (None, message(fields))]

    file.write_bytes(changed_stripe(random.Random(0), file.read_bytes(), change))
    assert "unreadable" in {each.rule_name for each in _findings(file)}, what


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        (4, b"\x00\x0d", "version 0.13"),
        (4, b"\x0c", "version 12"),
        (6, 2, "version 2 of writer 1"),
        (6, 2**31, "version 2147483648 of writer 1"),
    ],
)
def test_versions_that_hive_refuses(file: Path, field: int, value: int | bytes, found: str) -> None:
    """That of the format, and that of the program."""
    parts = parts_of(file.read_bytes())
    parts.postscript = [(f, value if f == field else v) for f, v in parts.postscript]
    file.write_bytes(parts.joined())
    (finding,) = _findings(file)
    assert (finding.rule_name, finding.found) == ("unreadable", found)


def test_statistics_of_too_few_columns(file: Path) -> None:
    """Hive looks for those of each column when it makes splits."""
    parts = parts_of(file.read_bytes())
    tree = tree_of(parts.footer)
    del tree[max(at for at, (field, _) in enumerate(tree) if field == 7)]
    parts.footer = message(tree)
    file.write_bytes(parts.joined())
    assert [each.found for each in _findings(file)] == ["statistics of 21 columns"]


@pytest.mark.parametrize(
    ("kind", "data", "starts"),
    [
        (RunKind.BYTES, "6100 fe0001", {0: 0, 2: 100, 5: 102}),
        (RunKind.VERSION_1, "6100 07 fb 02 03 06 07 0b", {0: 0, 3: 100, 9: 105}),
        (RunKind.VERSION_2, "0a2710 5e035ca1ab1edeadbeef c609 02 02 2242 42 46", {0: 0, 3: 5, 13: 9, 21: 19}),
        (RunKind.VERSION_2, "8e13 2b21 07d0 1e0014 70282c32363a40464a50545a5e646869 6e fc e8 0a2710", {0: 0}),
    ],
)
def test_the_examples_of_the_specification(kind: RunKind, data: str, starts: dict[int, int]) -> None:
    """Where runs begin, and how many values lie before them."""
    places = RunPlaces(bytes.fromhex(data), kind)
    length = len(bytes.fromhex(data))
    found = {at: places.values_before(at) for at in range(length + 1)}
    known = {at: count for at, count in found.items() if count is not None}
    assert starts.items() <= known.items()
    assert length in known
