"""Settings of a session that hold for a block, and are afterwards as the user had them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

__all__ = ["in_force", "users_own"]

_guard = threading.Lock()


@dataclass
class _Changed:
    """A setting that running blocks have changed: their number, and the user's value, None if not set."""

    blocks: int
    before: str | None


_changed: dict[tuple[SparkSession, str], _Changed] = {}


@contextlib.contextmanager
def in_force(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let settings hold for what the session begins within the block, by whomever.

    Blocks may overlap; the first one sets the values, the last one takes them back.
    """
    with _guard:
        for name, value in settings.items():
            _begin(spark, name, value)
    try:
        yield
    finally:
        with _guard:
            for name in settings:
                _end(spark, name)


def users_own(spark: SparkSession, name: str) -> str | None:
    """The value that the user gave a setting, whatever blocks have made of it; None if not set."""
    with _guard:
        known = _changed.get((spark, name))
        return spark.conf.get(name, None) if known is None else known.before


def _begin(spark: SparkSession, name: str, value: str) -> None:
    known = _changed.get((spark, name))
    if known is not None:
        known.blocks += 1
        return
    _changed[spark, name] = _Changed(1, spark.conf.get(name, None))
    spark.conf.set(name, value)


def _end(spark: SparkSession, name: str) -> None:
    known = _changed[spark, name]
    known.blocks -= 1
    if known.blocks:
        return
    del _changed[spark, name]
    if known.before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, known.before)
