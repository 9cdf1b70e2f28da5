"""Hive's Java writers: the bare RecordUpdater and the Mutation API, in a JVM that keeps the rows in memory.

The JVM is given only its heap's limit: collector and compilers are its own choice, as for a user of
Hive's writers on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from judges.jars import fetch_all, read_pins
from judges.java import compiled
from judges.process import JudgeProcess
from metastore_client import ADD_OPENS, find_java, hive_class_path, spark_jars

LOAD_TIMEOUT_SECONDS = 120.0
WRITE_TIMEOUT_SECONDS = 3600.0
"""A million rows in 800 groups take the Mutation API twenty seconds on two quiet cores."""

_SOURCES = Path(__file__).parent / "java"
_MAIN_CLASS = "writers.Writers"
_HEAP_OPTION = "-Xmx2g"
_LOG_OPTION = "-Dlog4j2.level=ERROR"


class JavaWriters(JudgeProcess):
    """One JVM with the rows of one case. Raises JudgeError if it cannot be made, HiveError if a call fails.

    Args:
        rows: file of ``GroupedRows.write_for_java``.
        partitions: how many partitions the rows fill.
        buckets: how many buckets each.
        log_path: where the JVM writes its log.
    """

    def __init__(self, rows: Path, partitions: int, buckets: int, log_path: Path) -> None:
        super().__init__("Hive's writers", _command(), log_path)
        try:
            answer = self.ask(
                {"do": "load", "path": str(rows), "partitions": partitions, "buckets": buckets},
                timeout_seconds=LOAD_TIMEOUT_SECONDS,
            )
        except BaseException:
            self.close()
            raise
        self.version = str(answer["version"])

    def update(self, folder: Path, txn_id: int) -> None:
        """Write all rows with the bare RecordUpdater into partitions below a folder."""
        self._write({"do": "updater", "folder": folder.as_uri(), "txn": txn_id})

    def run_transaction(self, uri: str, table: str) -> None:
        """Write all rows into ``database.table`` in one transaction of the Mutation API."""
        database, _, name = table.partition(".")
        self._write({"do": "api", "uri": uri, "database": database, "table": name})

    def _write(self, request: Mapping[str, Any]) -> None:
        self.ask(request, timeout_seconds=WRITE_TIMEOUT_SECONDS)


def _command() -> list[str | Path]:
    more = fetch_all(read_pins(_SOURCES / "jars.txt"))
    classes = compiled([_SOURCES], [*sorted(spark_jars().glob("*.jar")), *more])
    class_path = hive_class_path(classes, *more)
    return [find_java(), *ADD_OPENS, _HEAP_OPTION, _LOG_OPTION, "-cp", class_path, _MAIN_CLASS]
