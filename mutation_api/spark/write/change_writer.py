"""ChangeWriter: the work of one task. It sorts addressed changes, which come in any order, and writes them.

Python sorts and not Spark, whose sort of rows by four columns took half of the job: see DESIGN.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from mutation_api.change_set.writing_order import WritingOrder, write_batch
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.errors import MutationError
from mutation_api.spark.write.change_splitter import batches_in
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.table.writer_options import WriterOptions
from mutation_api.worker.batch_sorter import BatchSorter
from mutation_api.worker.coordinator import MutatorCoordinator
from mutation_api.worker.idle_memory import give_back

__all__ = ["ChangeWriter"]

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
        return (manifest.to_json() for manifest in self.write(pieces))

    def write(self, pieces: Iterable[bytes]) -> tuple[DeltaManifest, ...]:
        """Write all changes of one task; returns what was written.

        Raises: as :meth:`mutation_api.worker.coordinator.MutatorCoordinator.insert` and its other methods.
        """
        table = AcidTableSerializer.decode(self.table_text)
        coordinator = MutatorCoordinator(
            table, writer_id=self.writer_id, attempt_id=_attempt_id(), options=self.options
        )
        try:
            for batch in self.in_order(table.full_name, pieces):
                write_batch(coordinator, batch)
            return coordinator.close()
        except BaseException:
            _abort_quietly(coordinator)
            raise
        finally:
            give_back()

    def in_order(self, table_name: str, pieces: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
        """All changes of a task, in the order in which they are written."""
        memory_bytes, folder = self.options.sort_memory_bytes, _local_folder()
        with BatchSorter(table_name, WritingOrder(), memory_bytes, folder) as sorter:
            for piece in pieces:
                for batch in batches_in(piece):
                    sorter.add(batch)
            yield from sorter.in_order()


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
