"""Behaviour of the local disk only; that of all storages is in tests/contract/test_storage.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from mutation_api.storage import local as local_module
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location

STORAGE = LocalStorage()
OWN_POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""Counts the buffers of one test; what earlier tests free meanwhile is not in it."""


def write(location: Location, data: bytes) -> None:
    file = STORAGE.create(location)
    file.write(data)
    file.close()


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_publishing_refuses_to_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """A rename that replaced its target would lose rows; both files stay as they were."""
    if not links:

        def refuse(*_args: object, **_options: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(local_module.os, "link", refuse)
    root = Location.given(tmp_path)
    staged = STORAGE.stage(root / "a", root / "taken")
    staged.write(b"a")
    staged.close()
    write(root / "taken", b"taken")
    with pytest.raises(FileExistsError):
        STORAGE.publish(staged.staged, root / "taken")
    assert (tmp_path / "taken").read_bytes() == b"taken"
    STORAGE.publish(staged.staged, root / "b")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"b": b"a", "taken": b"taken"}


def test_checksums_go_with_their_file(tmp_path: Path) -> None:
    """They would belong to the next file of that name, which Hadoop would call corrupt."""
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / ".f.crc").write_bytes(b"sum")
    STORAGE.delete_file(Location.given(tmp_path / "f"))
    assert os.listdir(tmp_path) == []


def test_a_listing_passes_over_what_is_removed_meanwhile(tmp_path: Path) -> None:
    """A name whose file is gone, such as a broken link, is not listed."""
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "there").write_bytes(b"12")
    assert [(e.name, e.size) for e in STORAGE.list(Location.given(tmp_path))] == [("there", 2)]


def test_closed_files_hold_no_buffers(tmp_path: Path) -> None:
    """A task remembers thousands of them till its manifests are handed in."""
    pool, closed = pa.default_memory_pool(), []
    pa.set_memory_pool(OWN_POOL)
    try:
        for number in range(20):
            file = STORAGE.create(Location.given(tmp_path / str(number)))
            file.write(b"x" * 1000)
            assert OWN_POOL.bytes_allocated() > 0
            file.close()
            closed.append(file)
        assert OWN_POOL.bytes_allocated() == 0
    finally:
        pa.set_memory_pool(pool)
    with pytest.raises(ValueError, match="is closed"):
        closed[0].write(b"more")
