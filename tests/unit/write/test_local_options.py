"""Settings of the local engine."""

from __future__ import annotations

import os

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.write.local_plan import MEMORY_BYTES_MIN, LocalOptions


def test_defaults() -> None:
    """A gigabyte, and all processors."""
    assert LocalOptions() == LocalOptions(1 << 30, None)
    assert LocalOptions().thread_count == os.cpu_count()
    assert LocalOptions(threads=3).thread_count == 3


@pytest.mark.parametrize("wrong", [{"memory_bytes": MEMORY_BYTES_MIN - 1}, {"threads": 0}])
def test_out_of_range(wrong: dict[str, int]) -> None:
    """Refused with name and value."""
    ((name, value),) = wrong.items()
    with pytest.raises(ConfigurationError, match=rf"{name} \({value}\) must be"):
        LocalOptions(**wrong)
