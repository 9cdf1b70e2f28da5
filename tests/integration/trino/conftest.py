"""Fixtures of the tests with Trino."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judges.hive.judge import HiveJudge
from judges.trino.trino import TrinoCatalog
from metastore_client.remote.thrift_client import open_client
from mutation_api import connect
from tests.integration.trino.shared_table import Maker


@pytest.fixture
def maker(hive_line: HiveJudge, line_database: str, trino: TrinoCatalog) -> Iterator[Maker]:
    """Makes tables in the metastore of ``hive_line``."""
    with open_client(hive_line.uri) as metastore, connect(metastore) as hive:
        yield Maker(hive_line, trino, hive, metastore, line_database)
