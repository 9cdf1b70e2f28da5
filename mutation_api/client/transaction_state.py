"""The transaction's state machine as a table: which step is possible in which state. Pure.

An illegal step raises TransactionStateError and changes nothing. INACTIVE, OPEN, COMMITTED and ABORTED are
named as in Hive's Mutation API. There, a commit that the server refused left the state OPEN, and a commit
needed no begin.
"""

from __future__ import annotations

import enum

from mutation_api.errors import TransactionStateError

__all__ = ["Step", "TransactionState", "ended_meanwhile", "next_state", "require"]


class TransactionState(enum.Enum):
    """The state of a transaction."""

    INACTIVE = "inactive"
    OPEN = "open"
    COMMITTING = "being committed"
    """The commit has been sent to the server; an abort is not possible any more."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    OUTCOME_UNKNOWN = "outcome unknown"
    """The connection broke during commit and the server could not be asked; no other step is possible."""


class Step(enum.Enum):
    """What happens to a transaction."""

    BEGIN = "begin"
    SEND_COMMIT = "commit"
    SUCCEED = "succeed"
    REFUSE = "be refused"
    ABORT = "abort"
    LOSE_TRACK = "lose track"


_TABLE: dict[tuple[TransactionState, Step], TransactionState] = {
    (TransactionState.INACTIVE, Step.BEGIN): TransactionState.OPEN,
    (TransactionState.INACTIVE, Step.ABORT): TransactionState.ABORTED,
    (TransactionState.OPEN, Step.SEND_COMMIT): TransactionState.COMMITTING,
    (TransactionState.COMMITTING, Step.SUCCEED): TransactionState.COMMITTED,
    (TransactionState.COMMITTING, Step.REFUSE): TransactionState.ABORTED,
    (TransactionState.COMMITTING, Step.LOSE_TRACK): TransactionState.OUTCOME_UNKNOWN,
    (TransactionState.OPEN, Step.ABORT): TransactionState.ABORTED,
    # Makes `finally: transaction.abort()` harmless after a failure that has already aborted.
    (TransactionState.ABORTED, Step.ABORT): TransactionState.ABORTED,
}

_ADVICE = {
    TransactionState.INACTIVE: "call begin() first",
    TransactionState.OPEN: "it has already begun",
    TransactionState.COMMITTING: "wait until commit() returns",
    TransactionState.COMMITTED: "it is committed; take a new one from client.new_transaction()",
    TransactionState.ABORTED: "it is aborted; take a new one from client.new_transaction()",
    TransactionState.OUTCOME_UNKNOWN: "find out whether it is committed before you do anything else",
}


def next_state(state: TransactionState, step: Step, txn_id: int | None) -> TransactionState:
    """The state after ``step``. Raises TransactionStateError, naming the transaction, if it is illegal."""
    after = _TABLE.get((state, step))
    if after is None:
        raise TransactionStateError(
            f"{_name(txn_id)} is {state.value}: {step.value} is not possible; {_ADVICE[state]}"
        )
    return after


def require(state: TransactionState, expected: TransactionState, doing: str, txn_id: int | None) -> None:
    """Raise TransactionStateError unless ``state`` is ``expected``; ``doing`` names the caller's request."""
    if state is not expected:
        raise TransactionStateError(f"{_name(txn_id)} is {state.value}: cannot {doing}; {_ADVICE[state]}")


def _name(txn_id: int | None) -> str:
    return "the transaction" if txn_id is None else f"transaction {txn_id}"


def ended_meanwhile(txn_id: int | None, reason: str) -> TransactionStateError:
    """The error of a block that ends well after somebody else ended its transaction."""
    return TransactionStateError(
        f"{_name(txn_id)} was aborted while its block ran: {reason}. Nothing of it is visible; keep the "
        "connection open until the block has ended, and run it again"
    )
