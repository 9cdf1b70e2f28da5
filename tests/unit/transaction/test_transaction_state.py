"""The table of allowed steps."""

import pytest

from mutation_api.errors import TransactionStateError
from mutation_api.transaction.transaction_state import Step, TransactionState, next_state, require

ALLOWED = {
    (TransactionState.INACTIVE, Step.BEGIN): TransactionState.OPEN,
    (TransactionState.INACTIVE, Step.ABORT): TransactionState.ABORTED,
    (TransactionState.OPEN, Step.SEND_COMMIT): TransactionState.COMMITTING,
    (TransactionState.OPEN, Step.ABORT): TransactionState.ABORTED,
    (TransactionState.COMMITTING, Step.SUCCEED): TransactionState.COMMITTED,
    (TransactionState.COMMITTING, Step.REFUSE): TransactionState.ABORTED,
    (TransactionState.COMMITTING, Step.LOSE_TRACK): TransactionState.OUTCOME_UNKNOWN,
    (TransactionState.ABORTED, Step.ABORT): TransactionState.ABORTED,
}


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("step", Step)
def test_only_the_listed_steps_are_allowed(state: TransactionState, step: Step) -> None:
    """Every pair of state and step is either in the list above or raises, naming the transaction."""
    if (state, step) in ALLOWED:
        assert next_state(state, step, 7) is ALLOWED[state, step]
    else:
        with pytest.raises(TransactionStateError, match="transaction 7 is"):
            next_state(state, step, 7)


def test_require_names_what_was_asked_for() -> None:
    """A refusal says what was requested and what to do instead."""
    require(TransactionState.OPEN, TransactionState.OPEN, "commit", 7)
    with pytest.raises(TransactionStateError, match=r"cannot commit; call begin\(\) first"):
        require(TransactionState.INACTIVE, TransactionState.OPEN, "commit", None)
