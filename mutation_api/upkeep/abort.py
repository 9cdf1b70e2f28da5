"""abort_transactions: ends transactions that nobody will finish, so that their locks are released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from metastore_client.client import MetastoreClient

__all__ = ["abort_transactions"]


def abort_transactions(metastore: MetastoreClient, txn_ids: Iterable[int]) -> Iterator[int]:
    """Abort transactions, whosever they are.

    Args:
        metastore: where they are open.
        txn_ids: what ``hive-mutate show txns`` lists.

    Yields:
        Each id as soon as that transaction is aborted; one that was already is no mistake.

    Raises:
        NoSuchTxnError: a transaction is committed, or there is none of this id; the metastore does not tell
            which, so this is not made into one of our errors, which say what is visible.
        MetastoreError: the server could not be asked.
    """
    for txn_id in txn_ids:
        metastore.abort_txn(txn_id)
        yield txn_id
