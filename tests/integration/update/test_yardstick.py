"""The document's yardstick, with few rows: the whole of it is a benchmark."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_g18_each_extraction_is_quick_enough() -> None:
    """Each takes at most 3 s, a change is visible within five minutes, and Hive equals PostgreSQL then."""
    assert main(["incremental", "--rows", "20000", "--extractions", "3", "--no-compaction"]) == 0
