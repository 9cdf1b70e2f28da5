"""A metastore for a benchmark, whose process is distinguished from other JVMs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring.memory import process_tree
from metastore_client import EmbeddedMetastore, spark_jars

METASTORE = "metastore"
"""The kind of its processes."""


@contextlib.contextmanager
def measured_metastore(folder: Path) -> Iterator[tuple[EmbeddedMetastore, dict[int, str]]]:
    """A fresh metastore, and its processes with their kind, for :class:`~.measure.Watch`."""
    before = _java_processes()
    with EmbeddedMetastore(folder) as metastore:
        yield metastore, dict.fromkeys(_java_processes() - before, METASTORE)


def metastore_version() -> str:
    """Which Hive that is, by the name of its jar."""
    (jar,) = spark_jars().glob("hive-metastore-*.jar")
    return f"Hive {jar.stem.removeprefix('hive-metastore-')}"


def _java_processes() -> set[int]:
    return {process.pid for process in process_tree(os.getpid()) if process.kind == "java"}
