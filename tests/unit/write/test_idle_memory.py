"""Memory that is freed is given back to the system."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutation_api.orc.write import encoders
from mutation_api.table.acid_table import WriterOptions
from mutation_api.write import group_writer
from mutation_api.write.coordinator import MutatorCoordinator
from tests.unit.write.tables import acid_table, ids_of_bucket

FRAGMENTED = """
import numpy as np
from mutation_api.orc.write.encoders import give_back

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

held = [np.ones(8192) for _ in range(4000)]  # 64 KiB each: none is a mapping of its own
few = held[::100]
del held
freed = resident_bytes()
give_back()
print(freed - resident_bytes())
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The function of the C library is looked up again."""
    encoders._trim.cache_clear()
    yield
    encoders._trim.cache_clear()


@pytest.mark.thorough
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_pieces_between_what_is_still_needed_are_given_back() -> None:
    """Of 250 MiB, of which every hundredth piece is still in use, glibc keeps nearly all by itself."""
    run = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 200 * 2**20


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_other_c_libraries_are_left_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing function is not an error."""

    def refused(_: object) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refused)
    encoders.give_back()


def test_files_are_counted_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand files of few rows are given back as seldom as one of as many bytes."""
    table = acid_table(tmp_path, num_buckets=4)
    given_back: list[int] = []
    written: list[int] = []
    monkeypatch.setattr(group_writer, "give_back", lambda: given_back.append(len(written)))
    monkeypatch.setattr(group_writer, "BYTES_PER_GIVING_BACK", 1000)
    with MutatorCoordinator(table, writer_id="w", options=WriterOptions(batch_rows=1)) as target:
        for bucket in range(4):
            target.insert([], {"id": ids_of_bucket(table, bucket, 1)[0], "msg": "m"})
            written.append(bucket)
    sizes = [manifest.byte_count for manifest in target.close()]
    assert all(500 <= size < 1000 for size in sizes), sizes
    assert given_back == [2, 4]
