"""Replications for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive4
from tests.integration.replication.replicated import Replicated, replicated


@pytest.fixture
def pair(hive_notifying: Hive4, hive_target: Hive4, tmp_path: Path) -> Iterator[Replicated]:
    """A source and a target on two metastores."""
    with replicated(hive_notifying, hive_target, tmp_path) as made:
        yield made


@pytest.fixture
def on_one_metastore(hive_notifying: Hive4, tmp_path: Path) -> Iterator[Replicated]:
    """A source and a target on one, which costs no second JVM."""
    with replicated(hive_notifying, hive_notifying, tmp_path) as made:
        yield made
