"""extract_update: apply the changes of a source to its table, exactly once, in one transaction."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from metastore_client.client import MetastoreClient
from mutation_api.cdc.choice import engine_for
from mutation_api.cdc.engine import Engine
from mutation_api.cdc.ingest import IngestOptions, ingest_by
from mutation_api.cdc.ingest_report import IngestReport, read_watermarks
from mutation_api.cdc.mappings import TableMapping
from mutation_api.cdc.update.progress_mark import ProgressMark, Run
from mutation_api.cdc.update.settings import UpdateSettings, mark_of, require_settings, watermark_table_of
from mutation_api.cdc.update.sources import (
    NO_OPTIONS,
    AnyCapture,
    BinlogOptions,
    SourceAccess,
    capture_of,
    check_same_settings,
    check_same_source,
)
from mutation_api.cdc.watermark import Watermarks
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import normal_full_name
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_ENGINE = "none"


@dataclass(frozen=True, kw_only=True)
class ExtractOptions:
    """The options of :func:`extract_update`, which describes them."""

    password: str | None = field(default=None, repr=False)
    source: str | None = None
    dry_run: bool = False
    user: str | None = None
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT
    lock_failure_listener: LockFailureListener | None = None
    progress: Callable[[str], None] = lambda line: None
    binlog: BinlogOptions = NO_OPTIONS

    @property
    def access(self) -> SourceAccess:
        """The source that may be connected to."""
        return SourceAccess(password=self.password, source=self.source)


@dataclass(frozen=True)
class ExtractReport:
    """The result of an extraction.

    ``mark``: the position reached, or None if there was nothing new. ``removed``: number of rows deleted from
    the log. ``seconds``: time from start to commit. ``differences``: the events at the source that its method
    does not capture, and how they were handled.
    """

    table: str
    ingested: IngestReport
    mark: ProgressMark | None
    removed: int
    seconds: float
    differences: tuple[str, ...] = ()

    @property
    def run(self) -> Run | None:
        """The changes extracted; None if there were none, or the source does not distinguish operations."""
        return self.mark.recent[-1] if self.mark is not None and self.mark.recent else None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON-serialisable dict."""
        run = self.run
        return {
            "table": self.table,
            "txn_id": self.ingested.txn_id,
            "extraction": None if self.mark is None else self.mark.extraction,
            "position": None if self.mark is None else self.mark.position,
            "captured": None if run is None else dict(vars(run)),
            "removed_from_log": self.removed,
            "differences": list(self.differences),
            "seconds": round(self.seconds, 3),
            "applied": [each.to_dict() for each in self.ingested.tables],
        }

    def __str__(self) -> str:
        """Return one line, and another for each difference."""
        return "\n".join([self._line(), *(f"{self.table}: source: {each}" for each in self.differences)])

    def _line(self) -> str:
        if self.ingested.position is None:
            return f"{self.table}: nothing new"
        total = [each.merge.total for each in self.ingested.tables]
        counts = {
            name: sum(getattr(each, name) for each in total)
            for name in ("inserted", "updated", "deleted", "moved", "unchanged")
        }
        shown = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "no rows"
        lag = "" if self.run is None else f", {self.run.lag:.1f} s old"
        what = f"transaction {self.ingested.txn_id}" if not self.ingested.is_dry_run else "a dry run"
        return f"{self.table}: {shown}{lag}, in {what}, {self.seconds:.1f} s"


def extract_update(
    metastore: MetastoreClient,
    table: str,
    *,
    spark: SparkSession | None = None,
    local: LocalOptions | None = None,
    password: str | None = None,
    source: str | None = None,
    dry_run: bool = False,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    lock_failure_listener: LockFailureListener | None = None,
    progress: Callable[[str], None] = lambda line: None,
    seen_to: Collection[str] = (),
    recopy: bool = False,
    zero_dates: str = "error",
    ignored_columns: Collection[str] = (),
) -> ExtractReport:
    """Apply the changes captured since the last extraction, and delete them from the log.

    Changes committed in the source after the extraction has begun to read are left for the next one. If it
    was stopped at any point and is repeated, the result is the same. A second extraction of the table waits
    for the first.

    Args:
        metastore: metastore of ``table``; stays open.
        table: ``database.table``, for which incremental update is enabled.
        spark: Spark session that does the work; see ``ingest``.
        local: memory and threads, if this process does the work; see ``ingest``.
        password: password of the source. Default: that of the environment.
        source: URL of the database to which the password may be sent, as passed to ``enable_update``. It must
            match the table's properties. Default: the URLs in the environment variable HIVE_MUTATE_SOURCE.
        dry_run: True to report what would be done and write nothing.
        user: user name for the metastore.
        lock_timeout_seconds: maximum time to wait for another extraction or another writer.
        lock_failure_listener: called if the transaction is lost while it runs.
        progress: called with a message for each step.
        seen_to: method binlog: positions (``file:offset``) of statements that have been carried out in Hive
            by hand.
        recopy: method binlog: True to read the whole table again and replace its rows in Hive.
        zero_dates: method binlog: handling of dates with a zero month or day, ``error`` or ``null``.
        ignored_columns: method binlog: columns that only one side has, in addition to those of
            ``enable_update``.

    Raises:
        ConfigurationError: If incremental update is not enabled, if there is a password but no source was
            named to which it may be sent, or if the table's properties were altered.
        CaptureError: If the source no longer captures changes; ``repair_update`` fixes this.
        StoppedAtStatementError: Method binlog: see ``ingest``.
        LockNotAcquiredError: If another extraction or writer did not end in time.
        PartitionCreationError: If a row's partition does not exist and may not be created.
        ContradictionError: Insert-only methods: if an inserted row is already in the target with other
            values.
        ConnectionFailedError: See ``ingest``.
        RecordLayoutError: See ``ingest``.
        RecordValueError: See ``ingest``.
        SourcePositionError: See ``ingest``.
    """
    options = ExtractOptions(
        password=password,
        source=source,
        dry_run=dry_run,
        user=user,
        lock_timeout_seconds=lock_timeout_seconds,
        lock_failure_listener=lock_failure_listener,
        progress=progress,
        binlog=BinlogOptions(
            seen_to=tuple(seen_to),
            recopy=recopy,
            zero_dates=zero_dates,
            ignored_columns=tuple(ignored_columns),
        ),
    )

    engine = functools.partial(engine_for, spark=spark, local=local)
    return extract_by(engine, metastore, table, options)


def extract_by(
    engine: Callable[[AnyCapture], Engine], metastore: MetastoreClient, table: str, options: ExtractOptions
) -> ExtractReport:
    """Extract with the engine that ``engine`` returns for the source. See :func:`extract_update`."""
    started = time.monotonic()
    table = normal_full_name(table)
    settings = require_settings(metastore, table, "enabled", "disabling")
    known = read_watermarks(metastore, watermark_table_of(table))
    found = mark_of(known, table)
    before = None if found is None else found[1]
    check_same_settings(table, before, settings)
    check_same_source(table, () if known is None else known.of(target=table), settings)
    replaces = found is None and _has_rows(metastore, table)
    with closing(
        capture_of(settings, table, options.access, replaces=replaces, binlog=options.binlog)
    ) as source:
        if before is not None and not source.has_news(before):
            nothing = IngestReport(source.source_id, options.dry_run, None, {}, None, (), _NO_ENGINE)
            return ExtractReport(table, nothing, None, 0, time.monotonic() - started)
        report = ingest_by(
            engine(source),
            metastore,
            [_mapping(table, settings)],
            source,
            _ingest_options(table, settings, options, known, is_first=found is None),
        )
        seconds = time.monotonic() - started
        removed = source.acknowledge() if report.txn_id is not None else 0
        differences = tuple(map(str, source.differences))
    text = "" if report.position is None else report.position.text
    mark = ProgressMark.of(text) if '"extraction"' in text else None
    return ExtractReport(table, report, mark, removed, seconds, differences)


def _mapping(table: str, settings: UpdateSettings) -> TableMapping:
    return TableMapping(settings.source_table, table, tuple(name.lower() for name in settings.key))


def _ingest_options(
    table: str,
    settings: UpdateSettings,
    options: ExtractOptions,
    known: Watermarks | None,
    *,
    is_first: bool,
) -> IngestOptions:
    """Return the options; the first extraction makes the target equal to the source."""
    is_insert_only = settings.method.is_insert_only
    return IngestOptions(
        watermark_table=watermark_table_of(table),
        known_watermarks=known,
        dry_run=options.dry_run,
        strict=is_insert_only and settings.verifies_key and not is_first,
        changed_rows_advice=_changed_rows_advice(table, settings) if is_insert_only else None,
        create_partitions=settings.create_partitions,
        user=options.user,
        lock_timeout_seconds=options.lock_timeout_seconds,
        lock_failure_listener=options.lock_failure_listener or SaidByTheNextStep(),
        progress=options.progress,
    )


def _changed_rows_advice(table: str, settings: UpdateSettings) -> str:
    method = "row-version" if settings.method.has_version else "changelog"
    return (
        f"Method {settings.method.value} requires that rows never change. To continue, use a method that "
        f"captures all changes: hive-mutate update disable --table {table} --discard, then hive-mutate "
        f"update enable --table {table} --method {method} …; the first extraction compares the two tables. "
        "To accept changed rows among the inserts, enable with --no-verify-key"
    )


def _has_rows(metastore: MetastoreClient, table: str) -> bool:
    """Return True if the target has a row before its first extraction."""
    client: MutatorClient = MutatorClientBuilder().metastore(metastore).build()
    with client, client.open_snapshot(table) as view:
        return bool(TableScan(open_table(view, table), limit=1).to_arrow().num_rows)
