"""Whether a batch of a streaming query is written, skipped or refused, by the mark that the table has of it.

Spark numbers the batches of a query from 0, writes what a batch will read into the checkpoint before it runs
it, and writes afterwards that it has ended. After a crash it runs the last batch once more, with the same
input. So a batch with the number of the mark, and its input, is the same batch; any other number but the next
one says that checkpoint and table do not belong together.

The mark is a watermark (:mod:`mutation_api.inputs.watermark`) of the source ``stream:<name>``, one for each
table, whose position is the batch's number.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from mutation_api.errors import SourcePositionError
from mutation_api.inputs.source import Position
from mutation_api.inputs.watermark import Watermark

__all__ = ["SOURCE_TABLE", "RunningBatch", "Written", "is_new", "source_id_of"]

SOURCE_TABLE = "batch"
"""What marks of streaming queries have instead of a source's table."""


@dataclass(frozen=True)
class RunningBatch:
    """A batch of a query, as its checkpoint knows it.

    ``query_id``: the identifier in the checkpoint, the same after each restart. ``plan``: what the batch
    reads, in the words of the checkpoint's log of offsets.
    """

    query_id: str
    number: int
    plan: str

    @property
    def digest(self) -> str:
        """Tells two plans apart."""
        return hashlib.sha256(self.plan.encode()).hexdigest()[:32]

    @property
    def position(self) -> Position:
        """The mark's position."""
        text = {"batch": self.number, "query": self.query_id, "input": self.digest}
        return Position((self.number,), json.dumps(text))


def source_id_of(name: str) -> str:
    """The source in the watermarks that a query of this name is."""
    return f"stream:{name}"


@dataclass(frozen=True)
class Written:
    """A table that a query writes: ``first`` is the number of the batch that it begins with."""

    query_name: str
    target: str
    watermark_table: str
    first: int = 0

    def __str__(self) -> str:
        return f"streaming query {self.query_name!r}, table {self.target}"

    @property
    def forgetting(self) -> str:
        """The statement that removes the mark."""
        return (
            f"DELETE FROM {self.watermark_table} WHERE source_id = '{source_id_of(self.query_name)}' "
            f"AND target_table = '{self.target}'"
        )


def is_new(batch: RunningBatch, mark: Watermark | None, written: Written) -> bool:
    """Whether a batch is to be written into a table; False: the table has it.

    Args:
        batch: the batch that runs.
        mark: the table's mark; None if it has none of this query.
        written: the table, and by which query.

    Raises:
        SourcePositionError: table and checkpoint do not belong together; says how to go on.
    """
    if mark is None:
        if batch.number <= written.first:
            return batch.number == written.first
        raise SourcePositionError(
            f"{written}: batch {batch.number} would be its first, and batches {written.first} to "
            f"{batch.number - 1} are not in it. Nothing was written. If the table joins a query that runs, "
            f"say first_batch={batch.number} for it; otherwise begin with a new checkpoint"
        )
    query_id, digest = _said(mark, written)
    if query_id != batch.query_id:
        raise SourcePositionError(
            f"{written}: batch {batch.number} is of the query with the identifier {batch.query_id}, and "
            f"the table has batches up to {mark.order[0]} of {query_id} under the same name. Nothing was "
            "written. If this is another query, give it another name. If the checkpoint was deleted, the new "
            "one begins at its source's start: set the start to what the table lacks (startingOffsets, for "
            f"Kafka), and forget the old one: {written.forgetting}"
        )
    if batch.number == mark.order[0] + 1:
        return True
    if batch.number == mark.order[0] and digest == batch.digest:
        return False
    if batch.number > mark.order[0]:
        raise SourcePositionError(
            f"{written}: batch {batch.number} follows batch {mark.order[0]}, the last that the table has, "
            "and those between are missing. Nothing was written. Was the table set back? Restore the newest "
            "table, or begin with a new checkpoint, whose start is set to what the table lacks, after "
            f"{written.forgetting}"
        )
    raise SourcePositionError(
        f"{written}: batch {batch.number} comes again, and the table has batches up to {mark.order[0]} "
        f"(transaction {mark.txn_id}), whose input was another. The checkpoint is older than the table. "
        "Nothing was written. Restore the newest checkpoint; or begin with a new one, whose start is set to "
        f"what the table lacks, after {written.forgetting}"
    )


def _said(mark: Watermark, written: Written) -> tuple[str, str]:
    try:
        text = json.loads(mark.text)
        return str(text["query"]), str(text["input"])
    except (ValueError, TypeError, KeyError) as error:
        raise SourcePositionError(
            f"{written}: the watermark {mark.text!r} is not that of a streaming query: give the query "
            "another name"
        ) from error
