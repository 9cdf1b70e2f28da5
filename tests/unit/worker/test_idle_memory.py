"""Memory that is freed is given back to the system."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mutation_api.worker import idle_memory

FRAGMENTED = """
import numpy as np
from mutation_api.worker.idle_memory import give_back

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
    """What was found in the C library is looked up anew."""
    idle_memory._trim.cache_clear()
    yield
    idle_memory._trim.cache_clear()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_pieces_between_what_is_still_needed_are_given_back() -> None:
    """Of 250 MiB, of which every hundredth piece is still in use, glibc keeps nearly all by itself."""
    run = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True)
    assert int(run.stdout) > 200 * 2**20


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_other_c_libraries_are_left_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to call there, and that is no error."""

    def refused(_: object) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refused)
    idle_memory.give_back()
