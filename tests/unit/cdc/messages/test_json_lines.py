"""Lines of a log's files: every one once, with the byte it begins at."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mutation_api.cdc.messages.json_lines import line_number, log_files, log_ranges, read_lines
from tests.support.json_messages import write_log

SEED = 20240601


def test_lines_are_found_whatever_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line once, with the byte it begins at, though ranges begin in the midst of lines."""
    chance = random.Random(SEED)
    lines = [("x" * chance.randrange(40) + "é") for _ in range(200)]
    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.RANGE_BYTES", 997)
    folder = write_log(tmp_path, lines, [], ["", "last", ""])
    files = log_files([folder])
    rows = sorted(
        (part.file, offset, text)
        for part in log_ranges(files)
        for some in read_lines(files[part.file], part)
        for offset, text in some
    )
    assert [text for _, _, text in rows] == [*lines, "", "last"]
    assert [line_number(files[file].location, offset) for file, offset, _ in rows] == [*range(1, 201), 1, 2]


def test_a_mark_of_byte_order_is_no_part_of_a_line(tmp_path: Path) -> None:
    """Editors of Windows write it; the bytes at which lines begin are those of the file."""
    files = log_files([write_log(tmp_path, ["\ufeff{}", "\ufeff"])])
    (part,) = log_ranges(files)
    found = [line for some in read_lines(files[0], part) for line in some]
    assert found == [(0, "{}"), (6, "\ufeff")]
