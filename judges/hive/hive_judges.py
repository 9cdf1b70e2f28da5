"""Judges: real Hive 2.3, 3.1, 4.1 and 4.2, each in one JVM that stays up."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from judges.hive.judge import SOURCES, HiveJudge, agreed_rows
from judges.hive.model import DirectoryState, HiveRow, JavaOrcFile
from judges.jars import fetch_all, read_pins
from judges.java import compiled, java_21
from metastore_client.java import hive_class_path, spark_jars

ALL_TXNS_VALID = "9223372036854775806:9223372036854775807"
"""A valid-transaction list, in the server's text form, that hides nothing."""

NO_TXN_OPEN = "9223372036854775807:9223372036854775807::"
"""A valid-transaction list of Hive 3 and later that hides nothing."""

NOTIFICATIONS = {
    "hive.metastore.dml.events": "true",
    "hive.metastore.transactional.event.listeners": (
        "org.apache.hive.hcatalog.listener.DbNotificationListener"
    ),
}
"""Settings of a 3.1 or 4.1 that keeps the logs of events and, 4.1, of written files."""


def replication_settings(folder: Path) -> dict[str, str]:
    """Settings of a 4.x for REPL DUMP and REPL LOAD, with all its files below a folder."""
    return {
        **NOTIFICATIONS,
        "hive.repl.rootdir": f"file:{folder}/dumps",
        "hive.repl.cm.enabled": "true",
        "hive.repl.cmrootdir": f"file:{folder}/kept",
        "hive.repl.replica.functions.root.dir": f"file:{folder}/functions",
        "hive.repl.replica.external.table.base.dir": f"file:{folder}/external",
        "hive.repl.dump.include.acid.tables": "true",
    }


MAIN_CLASS = "judge.Judge"


class Hive23(HiveJudge):
    """Real Hive 2.3.10 from pyspark's jars; it can also read directories without a metastore."""

    line = "2.3"

    def _program(self) -> list[str | Path]:
        jars = sorted(
            spark_jars().glob("*.jar"), key=lambda jar: (not jar.name.startswith("hive-common-"), jar.name)
        )
        classes = compiled(self._sources("hive23"), jars)
        jars = s3a_jars("3.5") if self._reaches_s3 else []
        class_path = os.pathsep.join((hive_class_path(classes), *map(str, jars)))
        return ["-Xmx2g", "-cp", class_path, MAIN_CLASS]

    def _origin(self) -> str:
        return f"pyspark {importlib.metadata.version('pyspark')} jars"

    def read(
        self,
        directory: Path | str,
        columns: Sequence[tuple[str, str]] | str,
        valid_txns: str = ALL_TXNS_VALID,
        *,
        transactional_properties: str = "legacy",
        mode: str = "both",
        buckets: int = 1,
        where: tuple[str, str, int | str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> list[HiveRow]:
        """Read a table's directory with Hive's split generation and readers, without a metastore.

        Args:
            directory: the table's folder; its ``key=value`` folders are the partitions.
            columns: data columns as (name, Hive type) or as text ``id:bigint,msg:string``.
            valid_txns: the valid-transaction list in the server's text form.
            transactional_properties: ``legacy`` or ``default`` (split update).
            mode: ``row``, ``vector``, or ``both``, which compares them and returns the row reader's answer.
            buckets: the table's bucket count.
            where: (column, ``=``/``<``/``<=``, literal) pushed into the reader, which may skip rows that
                cannot match.
            settings: more of the job's configuration, as ``mapred.max.split.size``.

        Raises:
            HiveError: a reader failed.
            ReadersDisagreeError: the two readers give different rows.
        """
        request = {
            "directory": str(directory),
            "row_type": _row_type(columns),
            "valid_txns": valid_txns,
            "transactional_properties": transactional_properties,
            "buckets": str(buckets),
            "where": list(where) if where else None,
            "settings": dict(settings or {}),
        }
        if mode != "both":
            return self._read(request, mode)
        return agreed_rows(self._read(request, "row"), self._read(request, "vector"), directory)

    def _read(self, request: Mapping[str, Any], reader: str) -> list[HiveRow]:
        answer = self._ask("read", reader=reader, **request)
        return [
            HiveRow(partition, tuple(row_id) if row_id else None, tuple(values))
            for partition, row_id, values in answer["rows"]
        ]

    def splits(
        self,
        directory: Path | str,
        columns: Sequence[tuple[str, str]] | str,
        valid_txns: str = ALL_TXNS_VALID,
        *,
        transactional_properties: str = "legacy",
        buckets: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """List the splits that Hive would read: path, start, length, has_base, is_original."""
        answer = self._ask(
            "read",
            reader="row",
            directory=str(directory),
            row_type=_row_type(columns),
            valid_txns=valid_txns,
            transactional_properties=transactional_properties,
            buckets=str(buckets),
            where=None,
            settings=dict(settings or {}),
        )
        return list(answer["splits"])

    def acid_state(self, directory: Path | str, valid_txns: str = ALL_TXNS_VALID) -> DirectoryState:
        """Return which base, deltas and original files of a partition directory Hive chooses."""
        return self._state(directory, {"txns": valid_txns})

    def orc_file(self, path: Path | str, *, events: bool = False) -> JavaOrcFile:
        """Describe an ORC file as the Java reader sees it; with ``events`` also every row, raw."""
        facts = self._ask("orc", path=str(path), events=events)
        stats = facts["acid_stats"]
        return JavaOrcFile(
            facts["rows"],
            facts["schema"],
            facts["compression"],
            tuple(facts["stripe_rows"]),
            facts["metadata"],
            tuple(stats) if stats else None,
            facts.get("events"),
        )

    def hash(self, types: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[int]:
        """Compute Hive's bucket hash, version 1, of rows of values of some Hive types.

        The values are in the notation of :class:`HiveRow`; one hash, int32, for each row.
        """
        return self._hash(types, rows, version=1)


class _WriteIdJudge(HiveJudge):
    """Common part of 3.1 and later: their own jars, write ids, and tables read through SQL."""

    program: ClassVar[str]
    """The folder of the Java files, and of what they read, that go with ``common``."""
    hadoop: ClassVar[str]
    loader: ClassVar[tuple[str, ...]] = ()
    """Options that choose another system class loader."""

    def _program(self) -> list[str | Path]:
        jars = fetch_all(read_pins(SOURCES / f"hive{self.line.replace('.', '')}" / "jars.txt"))
        classes = compiled(self._sources(self.program), jars)
        if self._reaches_s3:
            jars = [*jars, *s3a_jars(self.hadoop)]
        class_path = os.pathsep.join(map(str, (classes, SOURCES / self.program, *jars)))
        return ["-Xmx2g", *self.loader, "-cp", class_path, MAIN_CLASS]

    def acid_state(
        self, directory: Path | str, valid_write_ids: str, valid_txns: str = NO_TXN_OPEN
    ) -> DirectoryState:
        """Return which base, deltas and original files of a partition directory Hive chooses.

        Args:
            directory: a partition's folder, or an unpartitioned table's.
            valid_write_ids: in the server's text form, ``db.table:watermark:min_open:open:aborted``.
            valid_txns: the same for transactions, ``watermark:min_open:open:aborted``; 4.x ignores the output
                of a compaction whose transaction is not over.
        """
        return self._state(directory, {"write_ids": valid_write_ids, "txns": valid_txns})

    def hash(self, types: Sequence[str], rows: Sequence[Sequence[Any]], *, version: int = 2) -> list[int]:
        """Compute Hive's bucket hash, version 1 or 2, of rows of values of some Hive types.

        The values are in the notation of :class:`HiveRow`, but nested ones as lists; one hash, int32, for
        each row.
        """
        return self._hash(types, rows, version=version)


class Hive31(_WriteIdJudge):
    """Real Hive 3.1.3 from Maven Central; its SQL runs as MapReduce jobs in the same process."""

    line = "3.1"
    program = "hive31"
    hadoop = "3.3"
    loader = ("-Djava.system.class.loader=judge.Loader",)


class Hive4(_WriteIdJudge):
    """Common part of 4.1 and 4.2 from Maven Central; their SQL runs on Tez in the same process."""

    program = "hive4"
    hadoop = "3.4"
    cleaning_seconds = 5.0


class Hive41(Hive4):
    """Real Hive 4.1.0."""

    line = "4.1"


class Hive42(Hive4):
    """Real Hive 4.2.1, on a Java 21."""

    line = "4.2"

    def _java(self) -> Path:
        return java_21()


def s3a_jars(hadoop: str) -> list[Path]:
    """Jars for ``s3a://``, in addition to a release's own; fetched on first use."""
    folder = SOURCES / "s3a"
    return fetch_all([*read_pins(folder / f"hadoop-{hadoop}.txt"), *read_pins(folder / "jars.txt")])


def _row_type(columns: Sequence[tuple[str, str]] | str) -> str:
    fields = columns if isinstance(columns, str) else ",".join(f"{name}:{type_}" for name, type_ in columns)
    return f"struct<{fields}>"
