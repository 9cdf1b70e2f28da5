"""A driver whose first task to get going stalls, so that Spark starts a twin of it on another host.

    python -m tests.integration.drivers.speculative_driver MASTER METASTORE_URI TABLE MARKER

The twin wins. Prints, as one JSON object, the attempts whose directories were there when Spark's job ended
and those that the manifests name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from judges.hive.judge import SPEED_OPTIONS
from mutation_api import local_spark_session
from mutation_api.spark import job
from mutation_api.spark.tasks import ChangeWriter
from mutation_api.storage.connect import storage_at
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.manifest import DeltaManifest, staging_directory

ROWS = 5000
BATCH_ROWS = 200
BATCH_BYTES = 100_000
"""Memory to sort in, so little that a task has several pieces to write."""
STALL_SECONDS = 300.0
"""Far longer than Spark takes to start the twin, finish it and kill the one that stalls."""

SETTINGS = {
    "spark.executor.extraJavaOptions": " ".join(SPEED_OPTIONS),
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
}


@dataclasses.dataclass(frozen=True)
class StallsOnce(ChangeWriter):
    """A writer; the first task that makes the marker stalls after its first batch, when its file is there."""

    marker: str = ""

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(super().in_order(table_name, batches)):
            if number == 1:
                with contextlib.suppress(FileExistsError):
                    Path(self.marker).open("x").close()
                    threading.Event().wait(STALL_SECONDS)
            yield batch


def main(master: str, uri: str, table: str, marker: str) -> int:
    found: dict[str, Any] = {}
    original_removal = job.remove_losing_attempts

    def watched_removal(acid_table: AcidTable, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        staged = staging_directory(acid_table.location, acid_table.required_txn_id())
        entries = storage_at(staged).list(staged / writer_id)
        found["attempts"] = sorted(entry.name for entry in entries if entry.is_directory)
        found["winners"] = sorted({m.attempt_id for m in manifests})
        original_removal(acid_table, writer_id, manifests)

    job.remove_losing_attempts = watched_removal
    job.ChangeWriter = lambda *of: StallsOnce(*of, marker=marker)  # type: ignore[assignment,misc]
    with local_spark_session("twin", master=master, settings=SETTINGS) as spark:
        changes = spark.range(ROWS).selectExpr(
            "'insert' operation", "id", "concat('m', id) msg", "concat('d', id % 3) ds"
        )
        builder = MutatorClientBuilder().metastore(uri)
        builder.add_sink_table(*table.split("."), create_partitions=True)
        with builder.build() as client, client.new_transaction() as transaction:
            options = WriterOptions(sort_memory_bytes=BATCH_BYTES)
            summary = job.apply_changes(transaction, table, changes, num_partitions=4, options=options)
    print(json.dumps(found | {"files": summary.file_count, "groups": summary.bucket_count}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
