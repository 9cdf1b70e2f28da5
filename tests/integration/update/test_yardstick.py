"""The document's yardstick, with few rows: the whole of it is a benchmark."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.incremental import add_arguments, measured

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_g18_the_yardstick_ends_with_equal_tables() -> None:
    """Each is measured, and Hive equals PostgreSQL then; the benchmark says how long one may take."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    is_equal, seconds = measured(
        parser.parse_args(["--rows", "20000", "--extractions", "3", "--no-compaction"])
    )
    assert is_equal
    assert len(seconds) == 3
