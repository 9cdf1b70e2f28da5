"""ChangeWriter: the work of one task. It sorts addressed changes, which come in any order, and writes them.

Python sorts and not Spark, whose sort of rows by four columns took half of the job: see DESIGN.md.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from mutation_api.acid.bucket_codec import ranks_in_bucket
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.errors import MutationError
from mutation_api.spark.write.address import (
    ADDRESS_COLUMNS,
    BUCKET,
    BUCKET_PROPERTY,
    OPERATION,
    PARTITION,
    ROW_NUMBER,
    TXN,
    numbers_of_partitions,
)
from mutation_api.spark.write.change_splitter import batches_in
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.table.writer_options import WriterOptions
from mutation_api.worker.batch_sorter import BatchSorter, KeyParts
from mutation_api.worker.coordinator import MutatorCoordinator
from mutation_api.worker.idle_memory import give_back

__all__ = ["ChangeWriter", "WritingOrder", "write_batch"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangeWriter:
    """Sorts addressed changes, passes them to a coordinator, and yields the manifests as JSON.

    It travels to the workers, so it holds the table as text, and the driver's storage settings.
    """

    table_text: str
    writer_id: str
    options: WriterOptions
    storage: HadoopSettings

    def __call__(self, pieces: Iterable[bytes]) -> Iterator[str]:
        """Write all changes of one task; returns a line of JSON for each file.

        Everything that may fail happens before the first yield.
        """
        configure_storage(self.storage)
        table = AcidTableSerializer.decode(self.table_text)
        coordinator = MutatorCoordinator(
            table, writer_id=self.writer_id, attempt_id=_attempt_id(), options=self.options
        )
        try:
            for batch in self.in_order(table.full_name, pieces):
                write_batch(coordinator, batch)
            manifests = coordinator.close()
        except BaseException:
            _abort_quietly(coordinator)
            raise
        finally:
            give_back()
        return (manifest.to_json() for manifest in manifests)

    def in_order(self, table_name: str, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """All changes of a task, in the order in which they are written."""
        memory_bytes, folder = self.options.sort_memory_bytes, _local_folder()
        with BatchSorter(table_name, WritingOrder(), memory_bytes, folder) as sorter:
            for piece in pieces:
                for batch in batches_in(piece):
                    sorter.add(batch)
            yield from sorter.in_order()


class WritingOrder:
    """The sort key for a coordinator's order of addressed changes: by group, then by ROW__ID.

    Partitions are numbered by first occurrence, since groups may come in any order. Inserts carry the
    transaction's own id, which is greater than any other, so they come last in their group.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, batch: pa.RecordBatch) -> KeyParts:
        """Partition, bucket, original transaction, bucket property and row id of n addressed changes."""
        # Rows of one transaction and bucket may differ in the property: it holds the statement's number.
        return [
            numbers_of_partitions(batch, lambda name: self._numbers.setdefault(name, len(self._numbers))),
            batch.column(BUCKET).to_numpy().astype(np.int64),
            batch.column(TXN).to_numpy(),
            ranks_in_bucket(batch.column(BUCKET_PROPERTY).to_numpy()),
            batch.column(ROW_NUMBER).to_numpy(),
        ]


def write_batch(coordinator: MutatorCoordinator, batch: pa.RecordBatch) -> None:
    """Cut a batch of addressed changes at the borders of its groups and write each piece.

    Args:
        coordinator: the task's coordinator.
        batch: ADDRESS_COLUMNS and the data columns, in the order of WritingOrder.
    """
    if not batch.num_rows:
        return
    address = {name: batch.column(name) for name in ADDRESS_COLUMNS}
    partitions, buckets, codes = address[PARTITION], address[BUCKET], address[OPERATION].to_numpy()
    row_ids = RowIdArrays(*(address[name].to_numpy() for name in (TXN, BUCKET_PROPERTY, ROW_NUMBER)))
    rows = _rows(batch)
    bounds = _group_bounds(partitions, buckets)
    for start, end in itertools.pairwise(bounds):
        coordinator.write_events(
            partitions[start].as_py(),
            buckets[start].as_py(),
            codes[start:end],
            row_ids.take(slice(start, end)),
            None if rows is None else rows.slice(start, end - start),
        )


def _rows(batch: pa.RecordBatch) -> pa.StructArray | None:
    names = batch.schema.names[len(ADDRESS_COLUMNS) :]
    if not names:
        return None
    return pa.StructArray.from_arrays([batch.column(n) for n in names], names=names)


def _group_bounds(partitions: pa.Array, buckets: pa.Array) -> list[int]:
    """The first index of each group, and the number of rows."""
    changes: NDArray[np.bool_] = np.zeros(len(buckets), np.bool_)
    changes[0] = True
    changes[1:] = np.diff(buckets.to_numpy()) != 0
    changes[1:] |= np.diff(partitions.dictionary_encode().indices.to_numpy()) != 0
    return [*np.flatnonzero(changes).tolist(), len(buckets)]


def _attempt_id() -> str:
    context = TaskContext.get()
    if context is None:
        return "0"
    # The attempt id alone is unique in the job; the partition's number is for people who read the directory.
    return f"{context.partitionId()}-{context.taskAttemptId()}"


def _local_folder() -> str | None:
    """One of the folders that Spark gives its workers, chosen by partition; None outside of Spark."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    context = TaskContext.get()
    return folders[context.partitionId() % len(folders)] if folders and context is not None else None


def _abort_quietly(coordinator: MutatorCoordinator) -> None:
    try:
        coordinator.abort()
    except (MutationError, OSError):
        logger.exception("aborting the coordinator failed; the driver removes its files")
