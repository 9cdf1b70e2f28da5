"""Tables of a metastore in memory, and connections to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.orders"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("price", "decimal(8,2)"))
DAY = (ColumnInfo("day", "date"),)
LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}

MakeHive = Callable[..., Hive]


@pytest.fixture
def make_hive(tmp_path: Path) -> Iterator[MakeHive]:
    """Connect to a metastore in memory with a table ``default.orders``, partitioned by day unless told
    otherwise.
    """
    made = []

    def make(line: str = "4.1", *, keys: Any = DAY, **options: Any) -> Hive:
        metastore = InMemoryMetastore(tmp_path, capabilities=LINES[line])
        create_acid_table(metastore, NAME, COLUMNS, partitioned_by=keys, clustered_by=["id"], num_buckets=2)
        made.append(connect(metastore, **options))
        return made[-1]

    yield make
    for hive in made:
        hive.close()
