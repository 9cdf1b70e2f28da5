"""current_ids: the state of all ids of a table now, as the metastore says."""

from __future__ import annotations

import dataclasses

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidAnswerError
from metastore_client.model import OpenTxns
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList, listed_ids
from mutation_api.table.acid_table import AcidTable
from mutation_api.upkeep.verify.known_ids import KnownIds

__all__ = ["current_ids", "hidden_ids"]


def current_ids(metastore: MetastoreClient, table: AcidTable, open_txns: OpenTxns | None = None) -> KnownIds:
    """What the metastore says of a table's ids and of transactions.

    Args:
        metastore: the table's.
        table: its version says what kind of ids it has.
        open_txns: as asked for before; None: ask now.

    Raises:
        MetastoreError: the server could not be asked.
    """
    open_txns = open_txns or metastore.get_open_txns()
    has_write_ids = table.version.uses_write_ids
    txns = ValidTxnList.from_open_txns(open_txns, None, has_write_ids=has_write_ids)
    if not has_write_ids:
        return KnownIds(txns, txns)
    valid = metastore.get_valid_write_ids([table.full_name], txns)[table.full_name]
    if valid.exceptions and valid.high_watermark == valid.exceptions[0]:
        valid = _completed(metastore, valid, txns)
    return KnownIds(valid, txns)


def _completed(metastore: MetastoreClient, valid: ValidWriteIdList, txns: ValidTxnList) -> ValidWriteIdList:
    """Hive 4.1 ends the list at the lowest id if none is valid. The others are open or aborted, too."""
    all_valid = ValidTxnList(txns.high_watermark)
    newest = metastore.get_valid_write_ids([valid.table], all_valid)[valid.table].high_watermark
    rest = hidden_ids(valid.high_watermark + 1, newest, valid.table)
    return dataclasses.replace(
        valid, high_watermark=max(newest, valid.high_watermark), exceptions=(*valid.exceptions, *rest)
    )


def hidden_ids(first: int, last: int, full_name: str) -> range:
    """Write ids of a table that an answer hides and does not list.

    Raises InvalidAnswerError: they are so many that the numbers cannot be right.
    """
    try:
        return listed_ids(first, last)
    except ValueError as error:
        raise InvalidAnswerError(f"the metastore's valid write ids of table {full_name}: {error}") from error
