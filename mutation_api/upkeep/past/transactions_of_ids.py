"""Which transaction a write id belongs to.

The metastore keeps the pairs, but no call names them. It does say which write ids a snapshot does not see,
and a snapshot is whatever list of transactions a client sends: one in which exactly the transactions with bit
b are missing hides exactly their write ids. So two questions for each bit of the transactions' numbers give
all pairs of a table. Nothing is changed by them.

The metastore forgets pairs of old transactions; those stay unknown.

Source: TxnHandler.getValidWriteIds (3.1.3, 4.1.0), as observed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from metastore_client.client import MetastoreClient
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList
from mutation_api.upkeep.current_ids import hidden_ids

__all__ = ["RECENT_TXNS_DEFAULT", "transactions_of_write_ids"]

RECENT_TXNS_DEFAULT = 4096
"""Number of transactions, the newest ones, whose write ids are looked for: a question lists half of them."""


def transactions_of_write_ids(
    metastore: MetastoreClient, full_name: str, newest_txn: int, recent_txns: int = RECENT_TXNS_DEFAULT
) -> dict[int, int]:
    """Write id -> transaction, of one table, as far as the metastore tells.

    Args:
        metastore: a server with write ids.
        full_name: ``database.table``.
        newest_txn: the highest transaction that was opened.
        recent_txns: how many transactions before it may be among the answers.

    Raises:
        MetastoreError: the server could not be asked.
    """
    oldest = max(1, newest_txn - recent_txns + 1)
    txns = range(oldest, newest_txn + 1)

    def hidden_without(missing: Iterable[int]) -> Collection[int]:
        seen = ValidTxnList(newest_txn, tuple(missing))
        return _hidden(metastore.get_valid_write_ids([full_name], seen)[full_name], newest_id)

    newest_id = metastore.get_valid_write_ids([full_name], ValidTxnList(newest_txn))[full_name].high_watermark
    known = hidden_without(txns)
    numbers = dict.fromkeys(known, 0)
    for bit in range((newest_txn - oldest + 1).bit_length()):
        is_set = hidden_without(txn for txn in txns if txn - oldest >> bit & 1)
        is_clear = hidden_without(txn for txn in txns if not txn - oldest >> bit & 1)
        for id in list(numbers):
            if (id in is_set) is (id in is_clear):
                del numbers[id]
            elif id in is_set:
                numbers[id] |= 1 << bit
    return {id: oldest + number for id, number in numbers.items()}


def _hidden(valid: ValidWriteIdList, newest_id: int) -> Collection[int]:
    """Write ids that a snapshot does not see. Hive 4 ends the list at the lowest if it sees none at all."""
    first = min(valid.exceptions, default=newest_id)
    if valid.high_watermark <= first < newest_id:
        return hidden_ids(first, newest_id, valid.table)
    return frozenset(valid.exceptions)
