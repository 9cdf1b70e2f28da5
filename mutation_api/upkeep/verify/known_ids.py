"""KnownIds: what the metastore says of the ids in a table's names and events. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from metastore_client.valid_ids import ValidIdList, ValidTxnList

__all__ = ["IdState", "KnownIds", "state_of"]


class IdState(enum.Enum):
    """COMMITTED, ABORTED, OPEN, or UNKNOWN: not given out."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownIds:
    """``ids`` those of the table's files, ``txns`` the transactions of compactions.

    Both were asked for after the directories were listed, so that nothing there can be younger.
    """

    ids: ValidIdList
    txns: ValidTxnList


def state_of(id: int, valid: ValidIdList) -> IdState:
    """State of one id; one that the metastore has forgotten (its files are cleaned) counts as committed."""
    if valid.is_valid(id):
        return IdState.COMMITTED
    if id > valid.high_watermark:
        return IdState.UNKNOWN
    return IdState.ABORTED if id in valid.aborted else IdState.OPEN
