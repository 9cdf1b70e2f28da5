"""Fixtures of the tests of upkeep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import connect
from tests.integration.upkeep.compacted_shop import Shop


@pytest.fixture
def shop(hive_line: HiveJudge, line_database: str) -> Iterator[Shop]:
    with connect(hive_line.uri, write_lock="optimistic") as hive, open_client(hive_line.uri) as metastore:
        yield Shop(hive_line, hive, metastore, f"{line_database}.orders")
