"""HadoopSettings: the storage settings of Hadoop's configuration, so that users need not repeat them.

They are read from ``core-site.xml``, ``hdfs-site.xml`` and (storage keys only) ``hive-site.xml``. The
``spark.hadoop.*`` of a running Spark session win over them.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metastore_client.errors import InvalidConfigurationError
from metastore_client.hive_site import read_hive_site, shipped_by_spark

__all__ = ["AUTHENTICATION", "HadoopSettings", "active_spark_context", "settings_of_spark"]

AUTHENTICATION = "hadoop.security.authentication"

_SPARK_PREFIX = "spark.hadoop."
_KEYS_OF_STORAGE = ("fs.", "dfs.", "hadoop.", "ipc.", "google.cloud.")
_TRUE = ("true", "1", "yes", "on")
_HADOOP_FILES = ("core-site.xml", "hdfs-site.xml")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class HadoopSettings:
    """Properties by name. Some are secret, so the ``repr`` shows no values.

    ``tokens``: delegation tokens to log in with, in the form of Hadoop's file, for a process without other
    means; they come from the driver (:mod:`mutation_api.spark.credentials`).
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: bytes = field(default=b"", repr=False)

    @classmethod
    def from_environment(cls) -> HadoopSettings:
        """Settings of the files in ``HADOOP_CONF_DIR`` (or ``HADOOP_HOME/etc/hadoop``) and ``HIVE_CONF_DIR``.

        In a container of YARN also those that Spark brought along.

        Raises:
            OSError: EINVAL, a file exists and is not a configuration.
        """
        properties: dict[str, str] = {}
        for file in _files():
            try:
                read = read_hive_site(file)
            except InvalidConfigurationError as error:
                raise OSError(errno.EINVAL, str(error), str(file)) from error
            properties |= {name: text for name, text in read.items() if name.startswith(_KEYS_OF_STORAGE)}
        return cls(properties)

    def with_properties(self, properties: Mapping[str, str]) -> HadoopSettings:
        """The same settings with these properties added; they replace those of the same names."""
        return replace(self, properties={**self.properties, **properties})

    def with_tokens(self, tokens: bytes) -> HadoopSettings:
        """The same with these delegation tokens."""
        return replace(self, tokens=tokens)

    def with_spark(self, context: Any) -> HadoopSettings:
        """The same with the ``spark.hadoop.*`` of a SparkContext."""
        found = {
            name.removeprefix(_SPARK_PREFIX): text
            for name, text in settings_of_spark(context).items()
            if name.startswith(_SPARK_PREFIX)
        }
        return self.with_properties(found)

    @property
    def is_secure(self) -> bool:
        """Whether Hadoop is to ask for Kerberos, or a token."""
        return (self.get(AUTHENTICATION) or "simple").lower() != "simple"

    def get(self, name: str, default: str | None = None) -> str | None:
        """The text of a property; the default if it is missing or empty."""
        return self.properties.get(name, "").strip() or default

    def flag(self, name: str, default: bool) -> bool:
        """A property that is true or false."""
        text = self.get(name)
        return default if text is None else text.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        """A property that is a whole number, with an optional unit of bytes: ``64M``, ``1g``.

        Raises:
            OSError: EINVAL, it is something else.
        """
        text = self.get(name)
        if text is None:
            return default
        digits = text.rstrip("kKmMgGtTbB")
        unit = text[len(digits) :].lower().removesuffix("b")
        if not digits.isdecimal() or unit not in _UNITS:
            raise OSError(
                errno.EINVAL, f"{name} is {text!r}; expected a whole number such as 8388608 or 8M", name
            )
        return int(digits) * _UNITS[unit]

    def __repr__(self) -> str:
        """The number of properties; no values, since some are secret."""
        tokens = ", delegation tokens" if self.tokens else ""
        return f"HadoopSettings({len(self.properties)} properties{tokens})"


def active_spark_context() -> Any:
    """The SparkContext of this process, or None. Does not import pyspark, which need not be installed."""
    pyspark = sys.modules.get("pyspark")
    context_type = getattr(pyspark, "SparkContext", None)
    return getattr(context_type, "_active_spark_context", None)


@functools.lru_cache(maxsize=1)
def settings_of_spark(context: Any) -> Mapping[str, str]:
    """The ``spark.*`` of a SparkContext. Asked for once: they stay as they are while Spark runs, which tells
    them one by one (15 ms for 17 settings).
    """
    return dict(context.getConf().getAll())


def _files() -> Iterator[Path]:
    """Configuration files that exist; a later one wins."""
    home = os.environ.get("HADOOP_HOME")
    hadoop = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    hive = os.environ.get("HIVE_CONF_DIR")
    shipped = shipped_by_spark()  # wins over what the machine has, as in Spark itself
    folders = (hadoop, shipped)
    files = [(hive, "hive-site.xml"), *((each, name) for each in folders for name in _HADOOP_FILES)]
    for folder, name in files:
        file = Path(folder or "") / name
        if folder and file.is_file():
            yield file
