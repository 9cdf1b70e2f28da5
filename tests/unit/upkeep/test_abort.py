from __future__ import annotations

import pytest

from metastore_client.errors import NoSuchTxnError
from metastore_client.model import TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api.upkeep.sweep import abort_transactions


def test_each_is_aborted_until_one_is_unknown() -> None:
    """One that was aborted before is no mistake; a committed one is, and those after it stay open."""
    metastore = InMemoryMetastore()
    first, committed, last = (metastore.open_txn("u", "h", "a") for _ in range(3))
    metastore.commit_txn(committed)
    assert list(abort_transactions(metastore, [first, first])) == [first, first]
    aborted = abort_transactions(metastore, [first, committed, last])
    assert next(aborted) == first
    with pytest.raises(NoSuchTxnError, match=str(committed)):
        next(aborted)
    assert {t.id: t.state for t in metastore.get_open_txns().txns}[last] is TxnState.OPEN
