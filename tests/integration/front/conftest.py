"""A Hive with the database that the pages write to, and how their commands find it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from tests.support.hive_site import write_hive_site


@pytest.fixture
def sales(hive: Hive23) -> Iterator[Hive23]:
    """A Hive with an empty database ``sales``."""
    hive.sql("CREATE DATABASE sales")
    try:
        yield hive
    finally:
        hive.time_out_transactions(0)
        hive.sql("DROP DATABASE sales CASCADE")


@pytest.fixture
def conf(hive: Hive23, tmp_path: Path) -> Path:
    """A ``HIVE_CONF_DIR`` that names this Hive."""
    folder = tmp_path / "conf"
    folder.mkdir()
    write_hive_site(folder, hive.uri)
    return folder
