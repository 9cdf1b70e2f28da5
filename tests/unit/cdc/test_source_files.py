"""Files of change sources: which are listed, and how they are opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.cdc.messages.json_lines import log_files
from mutation_api.cdc.source_url import all_located, children, located, opened, readable
from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry


def test_hidden_and_half_copied_files_are_none_of_the_log(tmp_path: Path) -> None:
    """As Hadoop names them; a file has its size, a folder none."""
    for name in (".a.crc", "_SUCCESS", "b.json._COPYING_", "c.json"):
        (tmp_path / name).write_text("123")
    (tmp_path / "d").mkdir()
    root = Location.given(tmp_path)
    assert children(root) == [FileEntry(root / "c.json", False, 3), FileEntry(root / "d", True, 0)]


def test_a_log_is_what_lies_below_its_folders_once(tmp_path: Path) -> None:
    """By the numbers in names; one that is named twice counts once, a link to a folder is not followed."""
    for name in ("10.json", "deep/2.json", "deep/.hidden/3.json", "9.json._COPYING_"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "deep" / "again").symlink_to(tmp_path)
    (tmp_path / "11.json").symlink_to(tmp_path / "10.json")
    found = log_files([tmp_path, tmp_path / "10.json", Location.given(tmp_path / "deep")])
    assert [(file.location.shown.removeprefix(f"{tmp_path}/"), file.number, file.size) for file in found] == [
        ("deep/2.json", 2, 1),
        ("10.json", 10, 1),
        ("11.json", 11, 1),
    ]


def test_one_or_several_are_given(tmp_path: Path) -> None:
    """A text is one, not the sequence of its characters."""
    one = Location.given(tmp_path)
    for given in (str(tmp_path), tmp_path, one):
        assert all_located(given) == all_located([given]) == (one,)
    assert all_located((one, "s3a://bucket/log")) == (one, Location.parse("s3a://bucket/log"))


@pytest.mark.parametrize("read_bytes", [1, 10, 1000])
def test_an_open_file_is_read_from_anywhere(tmp_path: Path, read_bytes: int) -> None:
    """However little is asked of the storage at once."""
    path = tmp_path / "file"
    path.write_bytes(b"first\nsecond\n" * 20)
    with opened(Location.given(path), read_bytes=read_bytes) as file:
        assert file.read(5) == b"first"
        file.seek(6)
        assert file.readline() == b"second\n"
        assert file.readline(3) == b"fir"
        assert len(file.read()) == 13 * 20 - 16
        assert file.read(1) == b""


def test_what_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    """It names the source, and the file as the storage does."""
    with pytest.raises(InputError, match=r"list:x: its files cannot be read: .*none"), readable("list:x"):
        opened(Location.given(tmp_path / "none")).__enter__()
    with pytest.raises(
        ConfigurationError, match="file://elsewhere/x: a local location must not name another"
    ):
        located("file://elsewhere/x")
