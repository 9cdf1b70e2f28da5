"""Our own job on another version of Spark, in a separate process with that version's interpreter.

A new process gets the parent's list of folders for modules. So this interpreter's own packages are put in
front, before pyspark is imported.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_sessions: list[Any] = []


def start(master: str, settings: Mapping[str, str]) -> str:
    """Start the session. Returns the version of pyspark."""
    sys.path.insert(0, sysconfig.get_path("purelib"))
    os.environ["PYTHONPATH"] = str(_ROOT)
    _sessions.append(
        importlib.import_module("mutation_api").local_spark_session(master=master, settings=settings)
    )
    return str(importlib.import_module("pyspark").__version__)


def write(uri: str, table: str, changes: str) -> tuple[int, int, int]:
    """Apply the changes in Parquet files to a table. Returns the numbers of inserts, updates and deletes."""
    ours = importlib.import_module("mutation_api")
    rows = _sessions[0].read.parquet(changes).drop("bucket_id")
    builder = ours.MutatorClientBuilder().metastore(uri).add_sink_table(table, create_partitions=True)
    with builder.build() as client, client.new_transaction() as transaction:
        summary = ours.apply_changes(transaction, table, rows)
    return summary.inserted, summary.updated, summary.deleted
