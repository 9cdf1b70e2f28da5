"""The transaction's state machine as a table (which step is possible in which state), and its summary. Pure.

An illegal step raises TransactionStateError and changes nothing. INACTIVE, OPEN, COMMITTED and ABORTED are
named as in Hive's Mutation API. In that API, a commit that the server refused left the state OPEN, and a
commit was possible without a begin.

:class:`TransactionSummary` is the result of a transaction in numbers, as a table and as data.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from mutation_api.errors import TransactionStateError
from mutation_api.transaction.manifest import DeltaManifest, FileKind


class TransactionState(enum.Enum):
    """The state of a transaction."""

    INACTIVE = "inactive"
    OPEN = "open"
    COMMITTING = "being committed"
    """The commit has been sent to the server; an abort is no longer possible."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    OUTCOME_UNKNOWN = "outcome unknown"
    """The connection broke during commit and the server could not be queried; no other step is possible."""


class Step(enum.Enum):
    """An event in the life of a transaction."""

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
    TransactionState.COMMITTED: "it is committed; create a new one with client.new_transaction()",
    TransactionState.ABORTED: "it is aborted; create a new one with client.new_transaction()",
    TransactionState.OUTCOME_UNKNOWN: "find out whether it is committed before you do anything else",
}


def next_state(state: TransactionState, step: Step, txn_id: int | None) -> TransactionState:
    """Return the state after ``step``. Raises TransactionStateError, naming the transaction, if illegal."""
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
    """Return the error of a block that ends without an error after its transaction was ended elsewhere."""
    return TransactionStateError(
        f"{_name(txn_id)} was aborted while its block ran: {reason}. None of its changes are visible; keep "
        "the connection open until the block has ended, and run it again"
    )


_HEADINGS = ("table", "partitions", "created", "inserted", "updated", "deleted", "files", "bytes")


@dataclass(frozen=True)
class StepSummary:
    """The numbers of rows of one change set of a table."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @classmethod
    def of(cls, manifests: Iterable[DeltaManifest]) -> StepSummary:
        """Add up the manifests of one change set."""
        found = list(manifests)
        # A layout with split updates counts an update in both files; the delta has it in every layout.
        updated = sum(m.update_count for m in found if m.kind is FileKind.DELTA)
        return cls(sum(m.insert_count for m in found), updated, sum(m.delete_count for m in found))


@dataclass(frozen=True)
class TableSummary:
    """The numbers of the changes written to one table. Rows are counted by the operations the user issued.

    ``steps`` contains the numbers of each change set, in order.
    """

    table: str
    partitions_touched: tuple[str, ...] = ()
    partitions_created: tuple[str, ...] = ()
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    file_count: int = 0
    byte_count: int = 0
    steps: tuple[StepSummary, ...] = ()

    @classmethod
    def of(
        cls,
        table: str,
        manifests: Sequence[DeltaManifest],
        partitions_created: tuple[str, ...] = (),
        replaced: Mapping[str, int] = MappingProxyType({}),
    ) -> TableSummary:
        """Add up the manifests of one table.

        If partitions were replaced, their rows are counted in the only step.
        """
        by_statement = sorted(manifests, key=lambda m: m.statement_id)
        steps = [
            StepSummary.of(group) for _, group in itertools.groupby(by_statement, lambda m: m.statement_id)
        ]
        if replaced:
            last = steps.pop() if steps else StepSummary()
            steps.append(dataclasses.replace(last, deleted=last.deleted + sum(replaced.values())))
        return cls(
            table=table,
            partitions_touched=tuple(
                sorted(({m.partition_name for m in manifests} | replaced.keys()) - {""})
            ),
            partitions_created=partitions_created,
            inserted=sum(step.inserted for step in steps),
            updated=sum(step.updated for step in steps),
            deleted=sum(step.deleted for step in steps),
            file_count=len(manifests),
            byte_count=sum(m.byte_count for m in manifests),
            steps=tuple(steps),
        )


@dataclass(frozen=True)
class TransactionSummary:
    """The result of a transaction in numbers; ``str()`` formats it as a table.

    ``phase_seconds`` holds the seconds of ``begin`` (including the wait for the lock), ``work`` (between
    begin and commit), ``publish`` and ``commit``, for the phases that were reached.
    """

    txn_id: int | None
    state: str
    tables: tuple[TableSummary, ...] = ()
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    lock_wait_seconds: float = 0.0
    roll_overs: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the summary as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Return the summary as a printable table."""
        rows = [_HEADINGS, *(_row(t) for t in self.tables)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join([self._head(), *lines, self._foot()])

    def _head(self) -> str:
        name = "not begun" if self.txn_id is None else str(self.txn_id)
        return f"transaction {name}: {self.state}"

    def _foot(self) -> str:
        phases = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.phase_seconds.items())
        waited = (
            f"; waited {self.lock_wait_seconds:.2f} for the lock" if self.lock_wait_seconds >= 0.1 else ""
        )
        rolled = f"; rolled over {self.roll_overs} times" if self.roll_overs else ""
        return f"seconds: {phases or 'none'}{waited}{rolled}"


def _row(table: TableSummary) -> tuple[str, ...]:
    numbers = (
        len(table.partitions_touched),
        len(table.partitions_created),
        table.inserted,
        table.updated,
        table.deleted,
        table.file_count,
        table.byte_count,
    )
    return (table.table, *(f"{n:,}" for n in numbers))
