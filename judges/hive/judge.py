"""What every release of Hive can do as a judge: metastore, SQL and compactor in one JVM that stays up."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from judges.errors import HiveError, ReadersDisagreeError
from judges.hive.model import Compaction, DirectoryState, HiveRow
from judges.process import START_TIMEOUT_SECONDS, JudgeProcess, ProcessJudge
from metastore_client.java import ADD_OPENS, find_java

CLEANING_TIMEOUT_SECONDS = 60.0
SOURCES = Path(__file__).parent
SPEED_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""For a JVM with small jobs: the second compiler and a parallel collector only compete for the cores."""

LOG_OPTIONS = (
    "-XX:+DisplayVMOutputToStderr",
    "-Xlog:disable",
    "-Xlog:all=warning:stderr",
    "-Dlog4j2.level=ERROR",
)
"""Standard output is for answers; the JVM's own warnings would be taken for some."""

CODE_CACHE = "-XX:ReservedCodeCacheSize=160m"
"""With one compiler it is 48 MiB, which half an hour of SQL fills; then nothing is compiled any more."""

DEFAULT_ZONE = "UTC"
"""In a JVM's zone Hive 2.3 writes, prints and hashes timestamps."""


class HiveJudge(ProcessJudge):
    """Real Hive in a JVM of its own, below one work folder.

    The metastore and SQL start when first needed. Requests run one at a time; every wait has a bound, after
    which the JVM is stopped and the error shows its log. A subclass for each release says what its JVM needs.
    """

    line: ClassVar[str]
    """The release of Hive, as ``"2.3"``."""
    cleaning_seconds: ClassVar[float] = 0.0
    """How long a compaction may stay ready for cleaning before the cleaner takes it."""
    request_seconds = 180.0

    def __init__(
        self,
        work_directory: Path,
        configuration: Mapping[str, str] | None = None,
        *,
        user: str | None = None,
        zone: str = DEFAULT_ZONE,
        is_measured: bool = False,
    ) -> None:
        """Start the JVM.

        Args:
            work_directory: holds the warehouse, the metastore's database, scratch files and the log.
            configuration: Hive and Hadoop settings that replace the judge's; with ``fs.s3a.…`` among them it
                gets the jars for that (not 3.1); with ``hadoop.security.authentication`` it logs in to HDFS
                by ``hive.metastore.kerberos.principal`` and ``.keytab.file``; with ``hive.metastore.uris``
                the SQL works on that metastore instead of one of its own (the compactor cannot be used then).
            user: who Hive is to HDFS; the user of this process for None.
            zone: the JVM's time zone, as Java calls it.
            is_measured: run as a long-lived server does, with Java's own choice of compilers.

        Raises:
            JudgeError: Java, a jar or the compiler is missing, or the JVM does not come up.
        """
        self.work_directory = work_directory.resolve()
        settings = [f"{name}={value}" for name, value in (configuration or {}).items()]
        self._reaches_s3 = any(name.startswith("fs.s3a.") for name in configuration or {})
        self._is_secure = (configuration or {}).get("hadoop.security.authentication") == "kerberos"
        speed = () if is_measured else (*SPEED_OPTIONS, CODE_CACHE)
        options = [*ADD_OPENS, *speed, *LOG_OPTIONS, f"-Duser.timezone={zone}"]
        if user is not None:
            options += [f"-DHADOOP_USER_NAME={user}", f"-Duser.name={user}"]
        command = [self._java(), *options, *self._program(), self.work_directory, *settings]
        super().__init__(JudgeProcess(f"Hive {self.line}", command, self.work_directory / "judge.log"))
        self._uri: str | None = None
        with self._stopped_on_failure():
            self.versions: Mapping[str, str] = self._ask("versions", timeout_seconds=START_TIMEOUT_SECONDS)

    def _java(self) -> Path:
        """The ``java`` that runs it."""
        return find_java()

    def _program(self) -> list[str | Path]:
        """Return the JVM's further options, its class path and its main class; may fetch and compile."""
        raise NotImplementedError

    def _sources(self, folder: str) -> list[Path]:
        """The folders of what is compiled for a release, whose own has this name."""
        folders = [SOURCES / "common", SOURCES / folder]
        return [SOURCES / "secure", *folders] if self._is_secure else folders

    @property
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""
        versions = ", ".join(f"{name} {self.versions[name]}" for name in ("orc", "hadoop", "java"))
        return f"Hive {self.versions['hive']} ({self._origin()}, {versions})"

    def _origin(self) -> str:
        return "Maven Central"

    @property
    def warehouse(self) -> Path:
        """The folder of the tables that SQL creates."""
        return self.work_directory / "warehouse"

    @property
    def uri(self) -> str:
        """The metastore's address, ``thrift://127.0.0.1:PORT``; it starts on first use."""
        if self._uri is None:
            self._uri = str(self._ask("serve", timeout_seconds=START_TIMEOUT_SECONDS)["uri"])
        return self._uri

    def sql(
        self,
        text: str,
        *,
        database: str = "default",
        settings: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> list[list[Any]]:
        """Run one statement; ``database``, ``settings`` and the time it may take hold for it alone.

        Returns:
            For a query its rows: numbers, booleans and None as such, decimals, dates, timestamps and nested
            values as text (nested ones as JSON). For SHOW, DESCRIBE and EXPLAIN the texts between tabs.

        Raises:
            HiveError: Hive refused the statement or failed.
            JudgeError: no answer in time; None for what every request may take.
        """
        answer = self._ask(
            "sql",
            timeout_seconds=timeout_seconds,
            text=text,
            database=database,
            settings=dict(settings or {}),
        )
        return list(answer["rows"])

    def table_rows(self, full_name: str, *, row_ids: bool = True, reader: str = "both") -> list[HiveRow]:
        """Read a table through SQL with the row reader and with the vectorised reader.

        Args:
            full_name: ``database.table``.
            row_ids: whether to read ROW__ID, which insert-only and plain tables do not have.
            reader: ``row``, ``vector``, or ``both``, which compares them.

        Returns:
            The rows in the row reader's order; nested values as JSON text. The vectorised reader of 2.3
            does not show ROW__IDs, so there they come from the row reader only.

        Raises:
            HiveError: a reader failed.
            ReadersDisagreeError: the two readers give different rows.
        """
        if reader != "both":
            return self._table_rows(full_name, reader, row_ids=row_ids)[0]
        rows, types = self._table_rows(full_name, "row", row_ids=row_ids)
        vectors, _ = self._table_rows(full_name, "vector", row_ids=row_ids)
        return agreed_rows(rows, vectors, full_name, types)

    def _table_rows(self, full_name: str, reader: str, *, row_ids: bool) -> tuple[list[HiveRow], list[str]]:
        answer = self._ask("table_rows", table=full_name, reader=reader, row_ids=row_ids)
        rows = [
            HiveRow(partition, tuple(row_id) if row_id else None, tuple(values))
            for partition, row_id, values in answer["rows"]
        ]
        return rows, list(answer["types"])

    def metastore_rows(self, select: str) -> list[list[str | None]]:
        """Query the metastore's own database; values come as text."""
        return list(self._ask("metastore_rows", select=select)["rows"])

    def worker(self) -> list[Compaction]:
        """Let Hive's compactor do one requested compaction, if any.

        Raises:
            HiveError: a compaction failed in this round.
        """
        return self._round("worker")

    def initiator(self) -> list[Compaction]:
        """Let Hive search once for tables that need a compaction."""
        return self._round("initiator")

    def cleaner(self) -> list[Compaction]:
        """Let Hive remove once the files that compactions made obsolete and no reader holds."""
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
            clean: also remove obsolete files.

        Raises:
            HiveError: Hive refused or failed.
        """
        part = f" PARTITION ({partition})" if partition else ""
        self.sql(f"ALTER TABLE {table}{part} COMPACT '{kind}'")
        while any(each.state == "initiated" for each in self.worker()):
            continue
        if clean:
            self.clean(table)

    def cannot_compact(self, error: HiveError) -> bool:
        """Return True if a compaction failed because Hive could not begin it.

        Hive 2.3 fails if there is nothing to compact. Hive 4 refuses while it has not cleaned up after the
        last compaction.
        """
        has_nothing = self.line == "2.3" and "the worker failed" in str(error)
        return has_nothing or "Compaction is already scheduled" in str(error)

    def clean(self, table: str) -> None:
        """Run the cleaner until it has done with a table, or somebody may still read the old files.

        Raises:
            HiveError: nobody can read them, and they are still there.
        """
        begun = time.monotonic()
        while any(
            each.state == "ready for cleaning" and f"{each.database}.{each.table}" == table
            for each in self.cleaner()
        ):
            waited = time.monotonic() - begun
            if waited > self.cleaning_seconds and self._is_in_use():
                return
            if waited > CLEANING_TIMEOUT_SECONDS:
                raise HiveError(f"the cleaner leaves the old files of {table}\n{self._process.log_tail()}")
            time.sleep(0.3)

    def _is_in_use(self) -> bool:
        """Whether a transaction is open or a lock is held, on any table."""
        open_transactions = "SELECT TXN_ID FROM TXNS WHERE TXN_STATE = 'o'"
        locks = "SELECT HL_LOCK_EXT_ID FROM HIVE_LOCKS"
        return any(self.metastore_rows(select) for select in (open_transactions, locks))

    def time_out_transactions(self, older_than_seconds: float = 300.0) -> None:
        """Let the metastore abort transactions and drop locks whose last heartbeat is older than this."""
        self._ask("time_out", older_than_millis=int(older_than_seconds * 1000))

    def _round(self, what: str) -> list[Compaction]:
        failed_before = {each.id for each in self.compactions() if each.state == "failed"}
        after = [Compaction(**each) for each in self._ask(what)["compactions"]]
        failed = [each for each in after if each.state == "failed" and each.id not in failed_before]
        if failed:
            raise HiveError(f"the {what} failed: {failed}\n{self._process.log_tail()}")
        return after

    def _state(self, directory: Path | str, valid: Mapping[str, str]) -> DirectoryState:
        state = self._ask("state", directory=str(directory), valid=dict(valid))
        deltas, originals, obsolete = state["deltas"], state["originals"], state["obsolete"]
        return DirectoryState(state["base"], tuple(deltas), tuple(originals), tuple(obsolete))

    def _hash(self, types: Sequence[str], rows: Sequence[Sequence[Any]], *, version: int) -> list[int]:
        values = [list(row) for row in rows]
        return list(self._ask("hash", types=list(types), rows=values, version=version)["hashes"])


def agreed_rows(
    rows: Sequence[HiveRow], vectors: Sequence[HiveRow], what: Path | str, types: Sequence[str] = ()
) -> list[HiveRow]:
    """Return the row reader's answer if the vectorised reader gave the same rows, in any order.

    ROW__IDs are compared if the vectorised reader shows them. ``types`` are the columns' Hive types if the
    vectorised answer went through a result file. Its text does not distinguish ``array(null)`` from NULL, nor
    ``array('')`` from an empty array, so nested values are compared without these differences.

    Raises:
        ReadersDisagreeError: the rows differ; names ``what`` was read.
    """
    shows_ids = all(each.row_id is not None for each in vectors)
    left = Counter(_key(each, types, with_id=shows_ids) for each in rows)
    right = Counter(_key(each, types, with_id=shows_ids) for each in vectors)
    if left != right:
        only_row, only_vector = list((left - right).elements()), list((right - left).elements())
        raise ReadersDisagreeError(
            f"{what}: {len(rows)} rows by the row reader, {len(vectors)} by the vectorised one; "
            f"only the first has {only_row[:5]}, only the second {only_vector[:5]}"
        )
    return list(rows)


def _key(row: HiveRow, types: Sequence[str], *, with_id: bool) -> str:
    values = [
        _as_in_result_file(json.loads(value)) if value is not None and _is_nested(type_) else value
        for value, type_ in zip(row.values, types or [""] * len(row.values), strict=True)
    ]
    return json.dumps([row.partition, row.row_id if with_id else None, values])


def _is_nested(type_: str) -> bool:
    return type_.startswith(("array<", "map<", "struct<", "uniontype<"))


def _as_in_result_file(value: Any) -> Any:
    """Return a nested value as it appears in the text of a result file."""
    if isinstance(value, dict):
        return {key: _as_in_result_file(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    items = [_as_in_result_file(each) for each in value]
    return {"[null]": None, '[""]': []}.get(json.dumps(items), items)
