"""Logs of messages, read and reduced by the engines of an earlier checkout of this library.

A new process gets the parent's list of folders for modules. So the checkout is put in front, before anything
of the library is imported; the function that reads and reduces with it is this checkout's. Spark's workers
look for modules where the JVM was started.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_engines: dict[str, Any] = {}


def start(checkout: str, master: str, settings: Mapping[str, str], memory_bytes: int) -> None:
    """Start the session, and a local engine that may use so much memory.

    Raises:
        RuntimeError: the library does not come from the checkout.
    """
    sys.path.insert(0, checkout)
    os.chdir(checkout)
    os.environ["PYTHONPATH"] = checkout
    library = importlib.import_module("mutation_api")
    if not Path(library.__path__[0]).is_relative_to(Path(checkout).resolve()):
        raise RuntimeError(f"{checkout} has no mutation_api; found {library.__path__[0]}")
    spark = library.local_session("earlier_json_logs", master=master, settings=settings)
    by_spark = importlib.import_module("mutation_api.inputs.engines.spark_engine")
    local = importlib.import_module("mutation_api.inputs.engines.local_engine")
    options = importlib.import_module("mutation_api.local.local_options").LocalOptions(
        memory_bytes=memory_bytes
    )
    _engines.update(spark=by_spark.SparkEngine(spark), local=local.LocalEngine(options))


def reduced(engine: str, name: str, folder: str) -> Mapping[tuple[str, str], int]:
    """Read the log of a format in a folder by ``spark`` or ``local``, and reduce it.

    Returns:
        Keys by first and last operation.
    """
    reading = importlib.import_module("benchmarks.data.message_reading")
    found: Mapping[tuple[str, str], int] = reading.reduced(
        _engines[engine], reading.source_of(name, Path(folder))
    )
    return found
