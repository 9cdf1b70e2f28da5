"""A snapshot under the exclusive lock keeps everyone else out until it is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.model import LockType, TableInfo
from mutation_api.errors import LockNotAcquiredError
from mutation_api.transaction.builder import MutatorClientBuilder


@pytest.mark.thorough
def test_nobody_reads_or_writes_meanwhile(
    metastore: MetastoreClient, make_table: Callable[..., TableInfo], line: str
) -> None:
    """It reads under its own lock, also of partitions."""
    table = make_table("t", "ds")
    metastore.add_partitions(table.database, table.name, [("a",)])
    builder = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(0.5)
    with builder.build() as client, builder.build() as other:
        snapshot = client.open_exclusively(table.full_name)
        held = [each for each in metastore.show_locks(table.database) if each.txn_id == snapshot.txn_id]
        expected = {(None, LockType.EXCLUSIVE)}
        if line in ("2.3", "3.1"):  # for their cleaner
            expected.add(("ds=a", LockType.SHARED_READ))
        assert {(each.partition, each.type) for each in held} == expected
        assert [each.name for each in snapshot.partitions(table.full_name)] == ["ds=a"]
        with pytest.raises(LockNotAcquiredError):
            other.open_snapshot(table.full_name)
        snapshot.close()
        other.open_snapshot(table.full_name).close()
