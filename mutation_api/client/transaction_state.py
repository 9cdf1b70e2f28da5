"""Which steps a transaction may take in which state; a table, and pure.

An illegal step raises TransactionStateError and changes nothing. The names of the first four states are
those of Hive's Mutation API; there, a commit that the server refused left OPEN, and commit needed no begin.
"""

from __future__ import annotations

import enum

from mutation_api.errors import TransactionStateError

__all__ = ["Step", "TransactionState", "next_state", "require"]


class TransactionState(enum.Enum):
    """Where a transaction stands."""

    INACTIVE = "inactive"
    OPEN = "open"
    COMMITTING = "being committed"
    """The commit is on its way to the server; nobody can abort any more."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    OUTCOME_UNKNOWN = "outcome unknown"
    """The line broke during commit and nobody could be asked; neither commit nor abort can follow."""


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
    # So that `finally: transaction.abort()` is harmless after a failure that has aborted already.
    (TransactionState.ABORTED, Step.ABORT): TransactionState.ABORTED,
}

_ADVICE = {
    TransactionState.INACTIVE: "call begin() first",
    TransactionState.OPEN: "it has begun already",
    TransactionState.COMMITTING: "wait until commit() returns",
    TransactionState.COMMITTED: "it is committed; take a new one from client.new_transaction()",
    TransactionState.ABORTED: "it is aborted; take a new one from client.new_transaction()",
    TransactionState.OUTCOME_UNKNOWN: "look whether it is committed before anything else is done",
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
    """Raise TransactionStateError unless ``state`` is ``expected``; ``doing`` says what was asked for."""
    if state is not expected:
        raise TransactionStateError(f"{_name(txn_id)} is {state.value}: cannot {doing}; {_ADVICE[state]}")


def _name(txn_id: int | None) -> str:
    return "the transaction" if txn_id is None else f"transaction {txn_id}"
