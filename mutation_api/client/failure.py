"""Turns the metastore client's errors into errors of this package, at the boundary and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_client.errors import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchTxnError,
    TxnAbortedError,
)
from mutation_api.errors import (
    ClientError,
    ConnectionFailedError,
    LockLostError,
    TransactionAbortedError,
    TransactionError,
    WriteConflictError,
)

__all__ = ["client_error", "metastore_errors_as_ours"]

_CONFLICT = re.compile(r"write conflict on (?P<resource>.+?) committed by \[?(?:txnid:)?(?P<winner>\d+)")


def client_error(error: MetastoreError, doing: str) -> ClientError:
    """Our error for a metastore's error, to be raised ``from`` it.

    ``doing`` names the failed step and its transaction.
    """
    text = f"{doing}: {error}"
    if isinstance(error, MetastoreUnavailableError):
        return ConnectionFailedError(f"{text}. The metastore could not be reached, or the connection broke")
    if isinstance(error, TxnAbortedError):
        return _aborted(error, text)
    if isinstance(error, NoSuchTxnError):
        return TransactionAbortedError(
            f"{text}. Another client ended the transaction; nothing of it is visible"
        )
    if isinstance(error, NoSuchLockError):
        return LockLostError(
            f"{text}. The lock ended with its transaction, which timed out or was aborted by another client"
        )
    return TransactionError(text)


@contextmanager
def metastore_errors_as_ours(doing: str) -> Iterator[None]:
    """Raise :func:`client_error` for every MetastoreError of the block."""
    try:
        yield
    except MetastoreError as error:
        raise client_error(error, doing) from error


def _aborted(error: TxnAbortedError, text: str) -> TransactionAbortedError:
    conflict = _CONFLICT.search(str(error))
    if conflict is None:
        return TransactionAbortedError(
            f"{text}. The transaction timed out, or another client aborted it; nothing of it is visible: run "
            "the whole job again"
        )
    return WriteConflictError(
        f"{text}. Transaction {conflict['winner']} changed {conflict['resource']} and committed first; "
        "nothing of ours is visible: run the whole job again, against a new snapshot"
    )
