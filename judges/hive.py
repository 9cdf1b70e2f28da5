"""Hive 2.3 itself as a judge: metastore, SQL, compactor, readers and bucket hash in one JVM that stays up."""

from __future__ import annotations

import importlib.metadata
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from judges.errors import HiveError, ReadersDisagreeError
from judges.java import compiled
from judges.process import JudgeProcess
from metastore_client.java import ADD_OPENS, find_java, hive_class_path

__all__ = ["ALL_TXNS_VALID", "Compaction", "DirectoryState", "Hive23", "HiveRow", "JavaOrcFile"]

ALL_TXNS_VALID = "9223372036854775806:9223372036854775807"
"""A valid-transaction list, in the server's text form, that hides nothing."""

START_TIMEOUT_SECONDS = 90.0
REQUEST_TIMEOUT_SECONDS = 180.0
HEAP_OPTION = "-Xmx2g"
# A statement is a small job; the second compiler and a parallel collector would only fight for the cores.
SPEED_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
LOG_OPTIONS = ("-XX:+DisplayVMOutputToStderr", "-Dlog4j2.level=ERROR")


@dataclass(frozen=True)
class HiveRow:
    """A row as one of Hive's readers gives it.

    ``partition`` is the directory below the table (``ds=x/hr=1``, escaped; empty if unpartitioned).
    ``row_id`` is (original transaction, bucket, row id), or None where the reader hides it. ``values`` are in
    the notation of ``hive23/Values.java``: decimals, dates, timestamps and non-finite numbers as text, binary
    as hex, maps as sorted [key, value] lists.
    """

    partition: str
    row_id: tuple[int, int, int] | None
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Compaction:
    """A compaction as ``SHOW COMPACTIONS`` tells it; ``partition`` is None for an unpartitioned table."""

    id: int
    database: str
    table: str
    partition: str | None
    kind: str
    state: str


@dataclass(frozen=True)
class DirectoryState:
    """Hive's choice among a directory's children, each a name or path relative to the directory.

    ``base`` is None without one; ``deltas`` are in reading order and include delete deltas.
    """

    base: str | None
    deltas: tuple[str, ...]
    originals: tuple[str, ...]
    obsolete: tuple[str, ...]


@dataclass(frozen=True)
class JavaOrcFile:
    """What the Java ORC reader finds in a file.

    ``acid_stats`` is (inserts, updates, deletes), None if the file has none; ``events`` is None unless asked
    for, else one list per event: operation, original transaction, bucket, row id, current transaction, row.
    """

    rows: int
    schema: str
    compression: str
    stripe_rows: tuple[int, ...]
    metadata: Mapping[str, str]
    acid_stats: tuple[int, int, int] | None
    events: list[Any] | None


class Hive23:
    """Real Hive 2.3.10 in a JVM of its own, below one work folder; a context manager.

    The metastore and SQL start when first needed; the readers and the hash do without. Requests run one at a
    time; every wait has a bound, after which the JVM is stopped and the error shows its log.
    """

    def __init__(self, work_directory: Path, configuration: Mapping[str, str] | None = None) -> None:
        """Start the JVM.

        Args:
            work_directory: holds the warehouse, the metastore's database, scratch files and the log.
            configuration: Hive settings that replace the judge's; with ``hive.metastore.uris`` the SQL works
                on that metastore instead of one of its own (the compactor cannot be used then).

        Raises:
            JudgeError: Java, the compiler or pyspark's jars are missing, or the JVM does not come up.
        """
        self.work_directory = work_directory.resolve()
        settings = [f"{name}={value}" for name, value in (configuration or {}).items()]
        self._process = JudgeProcess("Hive 2.3", self._command(settings), self.work_directory / "judge.log")
        self._uri: str | None = None
        try:
            self.versions: Mapping[str, str] = self._ask("versions", timeout_seconds=START_TIMEOUT_SECONDS)
        except BaseException:
            self.close()
            raise

    def _command(self, settings: Sequence[str]) -> list[str | Path]:
        classes = compiled(Path(__file__).parent / "hive23")
        # dates and timestamps are printed and hashed in the JVM's zone
        options = [*ADD_OPENS, *SPEED_OPTIONS, *LOG_OPTIONS, HEAP_OPTION, "-Duser.timezone=UTC"]
        program: list[str | Path] = ["-cp", hive_class_path(classes), "hive23.HiveJudge", self.work_directory]
        return [find_java(), *options, *program, *settings]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the JVM."""
        self._process.close()

    @property
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""
        versions = ", ".join(f"{name} {self.versions[name]}" for name in ("orc", "hadoop", "java"))
        return (
            f"Hive {self.versions['hive']} (pyspark {importlib.metadata.version('pyspark')} jars, {versions})"
        )

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """Hive's log, for a look after a failure."""
        return self._process.log_path

    @property
    def warehouse(self) -> Path:
        """The folder of the tables that SQL creates."""
        return self.work_directory / "warehouse"

    @property
    def uri(self) -> str:
        """The metastore's address, ``thrift://127.0.0.1:PORT``; starts to serve when first asked for."""
        if self._uri is None:
            self._uri = str(self._ask("serve", timeout_seconds=START_TIMEOUT_SECONDS)["uri"])
        return self._uri

    def sql(
        self, text: str, *, database: str = "default", settings: Mapping[str, str] | None = None
    ) -> list[list[Any]]:
        """Run one statement; ``database`` and ``settings`` hold for it alone.

        Returns:
            For a query its rows, with numbers, booleans and None as such, decimals, dates, timestamps and
            nested values as text (nested ones as JSON). For SHOW, DESCRIBE and EXPLAIN the texts between
            tabs.

        Raises:
            HiveError: Hive refused the statement or failed.
        """
        answer = self._ask("sql", text=text, database=database, settings=dict(settings or {}))
        return list(answer["rows"])

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
            mode: ``row``, ``vector``, or ``both``, which compares them and gives the row reader's answer.
            buckets: the table's bucket count.
            where: (column, ``=``/``<``/``<=``, literal) pushed into the reader, which may skip what cannot
                match.
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
        rows, vectors = self._read(request, "row"), self._read(request, "vector")
        _compare(rows, vectors, directory)
        return rows

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
        """Tell which base, deltas and original files of a partition directory Hive chooses."""
        state = self._ask("state", directory=str(directory), valid_txns=valid_txns)
        deltas, originals, obsolete = state["deltas"], state["originals"], state["obsolete"]
        return DirectoryState(state["base"], tuple(deltas), tuple(originals), tuple(obsolete))

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
        return list(self._ask("hash", types=list(types), rows=[list(row) for row in rows])["hashes"])

    def worker(self) -> list[Compaction]:
        """Let Hive's compactor do one compaction that was asked for, if any.

        Raises:
            HiveError: a compaction failed in this round.
        """
        return self._round("worker")

    def initiator(self) -> list[Compaction]:
        """Let Hive look once for tables that need a compaction."""
        return self._round("initiator")

    def cleaner(self) -> list[Compaction]:
        """Let Hive remove once what compactions made obsolete and no reader holds."""
        return self._round("cleaner")

    def compactions(self) -> list[Compaction]:
        """List the compactions, waiting, running and done."""
        return [Compaction(**each) for each in self._ask("compactions")["compactions"]]

    def compact(self, table: str, kind: str, *, partition: str | None = None, clean: bool = True) -> None:
        """Compact a table or one partition now.

        Args:
            table: ``database.table``.
            kind: ``minor`` or ``major``.
            partition: as in SQL, ``ds='x', hr=1``; needed for a partitioned table.
            clean: also remove what has become obsolete.

        Raises:
            HiveError: Hive refused or failed.
        """
        part = f" PARTITION ({partition})" if partition else ""
        self.sql(f"ALTER TABLE {table}{part} COMPACT '{kind}'")
        while any(each.state == "initiated" for each in self.worker()):
            continue
        if clean:
            self.cleaner()

    def _round(self, what: str) -> list[Compaction]:
        failed_before = {each.id for each in self.compactions() if each.state == "failed"}
        after = [Compaction(**each) for each in self._ask(what)["compactions"]]
        failed = [each for each in after if each.state == "failed" and each.id not in failed_before]
        if failed:
            raise HiveError(f"the {what} failed: {failed}\n{self._process.log_tail()}")
        return after

    def time_out_transactions(self, older_than_seconds: float = 300.0) -> None:
        """Let the metastore abort transactions and drop locks whose last heartbeat is older than this."""
        self._ask("time_out", older_than_millis=int(older_than_seconds * 1000))

    def _ask(
        self, what: str, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS, **members: Any
    ) -> dict[str, Any]:
        return self._process.ask({"do": what, **members}, timeout_seconds=timeout_seconds)


def _row_type(columns: Sequence[tuple[str, str]] | str) -> str:
    fields = columns if isinstance(columns, str) else ",".join(f"{name}:{type_}" for name, type_ in columns)
    return f"struct<{fields}>"


def _compare(rows: Sequence[HiveRow], vectors: Sequence[HiveRow], directory: Path | str) -> None:
    """Compare the readers' answers as multisets; ROW__IDs only where the vectorised reader shows them."""
    shows_ids = all(each.row_id is not None for each in vectors)
    left = Counter(_key(each, with_id=shows_ids) for each in rows)
    right = Counter(_key(each, with_id=shows_ids) for each in vectors)
    if left != right:
        only_row, only_vector = list((left - right).elements()), list((right - left).elements())
        raise ReadersDisagreeError(
            f"{directory}: {len(rows)} rows by the row reader, {len(vectors)} by the vectorised one; "
            f"only the first has {only_row[:5]}, only the second {only_vector[:5]}"
        )


def _key(row: HiveRow, *, with_id: bool) -> str:
    return json.dumps([row.partition, row.row_id if with_id else None, row.values])
