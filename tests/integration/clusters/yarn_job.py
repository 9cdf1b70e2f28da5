"""A job for a cluster, which goes wrong in one way; a single file, since nothing else of the tests is there.

    spark-submit … yarn_job.py METASTORE_URI TABLE ROWS MARKERS [FAULT]

It inserts ROWS rows, then changes a third of them, deletes a third and inserts ROWS more: two transactions.
While the second is written the FAULT happens, once for each name that it finds free in the folder MARKERS.
The last line of its output is ``RESULT`` and, as JSON, where its programs ran.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import mutation_api
from mutation_api import MutatorClient, MutatorClientBuilder, apply_changes, read_table
from mutation_api.spark import job
from mutation_api.spark.tasks import ChangeWriter
from mutation_api.table.acid_table import WriterOptions

SORT_BYTES = 150_000
MANY_ROWS = 100_000
"""With fewer a task gets little memory, so that it has several batches to write."""
STALL_SECONDS = 300.0
LATE_SECONDS = 130.0
"""More than twice as long as tickets and tokens live in the tests with Kerberos."""
DRIVER_DIES = "driver dies"


def main(uri: str, table: str, rows: str, markers: str, fault: str = "") -> None:
    count = int(rows)
    spark = SparkSession.builder.appName("yarn job").getOrCreate()
    options = WriterOptions(sort_memory_bytes=SORT_BYTES) if count < MANY_ROWS else None
    with client_of(uri, table) as client, client.new_transaction() as transaction:
        apply_changes(transaction, table, inserts(spark, 0, count), num_partitions=4, options=options)
    if fault in FAULTS:
        job.ChangeWriter = lambda *of: FaultyWriter(  # type: ignore[assignment,misc]
            *of, fault=fault, markers=markers
        )
    with client_of(uri, table) as client, client.new_transaction() as transaction:
        seen = read_table(transaction, table, spark=spark)
        updates = seen.where("id % 3 = 0").selectExpr(
            "'update' operation", "ROW__ID", "id", "'new' msg", "ds"
        )
        deletes = seen.where("id % 3 = 1").selectExpr("'delete' operation", "*")
        more = inserts(spark, count, 2 * count)
        changes = updates.unionByName(deletes).unionByName(more, allowMissingColumns=True)
        summary = apply_changes(transaction, table, changes, num_partitions=6, options=options)
        if fault == DRIVER_DIES and is_first(markers, "driver"):
            kill_container()
    with client_of(uri, table) as client:
        read = read_table(client.open_snapshot(table), table, spark=spark).count()
    places = spark.range(0, 8, 1, 8).mapInArrow(places_of_tasks, "place string").distinct().collect()
    found = {
        "changes": summary.inserted + summary.updated + summary.deleted,
        "read": read,
        "driver": place(),
        "tasks": [json.loads(row[0]) for row in places],
    }
    print("RESULT", json.dumps(found), flush=True)
    spark.stop()


def client_of(uri: str, table: str) -> MutatorClient:
    """A client with a connection, and so a login, of its own; ``-``: the metastore of the configuration."""
    builder = MutatorClientBuilder().add_sink_table(table, create_partitions=True)
    return builder.metastore(None if uri == "-" else uri).build()


def inserts(spark: SparkSession, start: int, end: int) -> Any:
    return spark.range(start, end, 1, 4).selectExpr(
        "'insert' operation", "id", "concat('m', id) msg", "concat('d', id % 5) ds"
    )


def place() -> dict[str, Any]:
    """What this program runs on."""
    return {
        "python": sys.executable,
        "library": mutation_api.__path__[0],
        "path": sys.path,
        "PATH": os.environ.get("PATH", ""),
        "folder": str(Path.cwd()),
    }


def places_of_tasks(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"place": [json.dumps(place())]})


@dataclasses.dataclass(frozen=True)
class FaultyWriter(ChangeWriter):
    """A writer to which the fault happens when it has written its first batch."""

    fault: str = ""
    markers: str = ""

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(super().in_order(table_name, batches)):
            if number == 1:
                FAULTS[self.fault](self.markers)
            yield batch


def is_first(markers: str, name: str) -> bool:
    """Whether nobody else has this name in the folder."""
    try:
        (Path(markers) / name).open("x").close()
    except FileExistsError:
        return False
    return True


def task_raises(markers: str) -> None:
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the disk is on fire")


def always_raises(markers: str) -> None:
    raise RuntimeError("the disk is on fire")


def worker_dies(markers: str) -> None:
    if TaskContext.get().attemptNumber() == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def executor_dies(markers: str) -> None:
    """With all that it had shuffled."""
    if is_first(markers, "executor"):
        os.kill(java_above(), signal.SIGKILL)


def executor_dies_late(markers: str) -> None:
    """When all tickets and tokens of its start have ended."""
    if is_first(markers, "executor"):
        threading.Event().wait(LATE_SECONDS)
        os.kill(java_above(), signal.SIGKILL)


def shuffle_is_lost(markers: str) -> None:
    """The files that this executor keeps for the others."""
    if is_first(markers, "shuffle"):
        for folder in os.environ["LOCAL_DIRS"].split(","):
            for file in Path(folder).glob("blockmgr-*/*/shuffle_*"):
                file.unlink(missing_ok=True)


def executor_is_decommissioned(markers: str) -> None:
    """It takes no more tasks, hands over its shuffled files and ends."""
    if is_first(markers, "decommissioned"):
        os.kill(java_above(), signal.SIGPWR)


def task_stalls(markers: str) -> None:
    """It has begun its file and does not go on, until Spark ends it."""
    if is_first(markers, "stalled"):
        threading.Event().wait(STALL_SECONDS)


def executors_die_at_random(markers: str) -> None:
    """Each task has two chances of five to end its executor; it does so three times in a job at most."""
    dice = os.urandom(1)[0]
    if dice < 100 and is_first(markers, f"random{dice % 3}"):
        os.kill(java_above(), signal.SIGKILL)


def kill_container() -> None:
    """The driver's JVM and this program, as when their machine is lost."""
    os.kill(java_above(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def java_above() -> int:
    """The process id of the JVM that started this program."""
    process = os.getpid()
    while process > 1:
        status = Path(f"/proc/{process}/stat").read_text()
        name, _, rest = status.partition("(")[2].rpartition(")")
        if name == "java":
            return process
        process = int(rest.split()[1])
    raise AssertionError("no JVM started this program")


FAULTS: Mapping[str, Callable[[str], None]] = {
    "task raises": task_raises,
    "task always raises": always_raises,
    "worker dies": worker_dies,
    "executor dies": executor_dies,
    "executor dies late": executor_dies_late,
    "shuffle is lost": shuffle_is_lost,
    "executor is decommissioned": executor_is_decommissioned,
    "task stalls": task_stalls,
    "executors die at random": executors_die_at_random,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
