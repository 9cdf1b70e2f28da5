"""erase: delete the rows of some keys from several tables, and prove that no file holds the keys any more."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError
from mutation_api.hive.connect import connect
from mutation_api.hive.erasure_keys import keys_by_table
from mutation_api.hive.erasure_run import Compactor, ErasureRun, KeyedTable
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.compaction_view import check_initiator
from mutation_api.upkeep.erasure.report import ErasureReport, signed
from mutation_api.upkeep.watermark_table import watermark_table_beside

AT_ONCE_DEFAULT = 2
ERASE_WAIT_SECONDS_DEFAULT = 3600.0


def erase(
    metastore: MetastoreClient,
    keys: object,
    columns: Mapping[str, str | tuple[str, str]],
    *,
    dry_run: bool = False,
    wait_seconds: float = ERASE_WAIT_SECONDS_DEFAULT,
    watermark_table: str | None = None,
    signature_key: bytes | None = None,
    threads: int | None = None,
    compact: str = "auto",
    at_once: int = AT_ONCE_DEFAULT,
    progress: Callable[[str], None] = lambda line: None,
    clock: Clock | None = None,
) -> ErasureReport:
    """Erase all rows with some keys from tables, and search every file that is left for them.

    The rows are deleted in one transaction. Then the partitions whose files hold a key are compacted, and
    when the server's cleaner has removed the old files, everything below the tables' locations is searched.
    The report says ``erased`` only if every byte there was decoded and no key was found. If the wait ends
    earlier, it says ``unfinished`` and who is in the way; call it again with the same arguments to go on.

    Args:
        metastore: the metastore of the tables; stays open.
        keys: the keys: a sequence or Arrow array of values, or rows with Arrow's stream interface.
        columns: the key column of each table, ``{"sales.orders": "customer_id"}``, which may be a partition
            column; or a pair of it and the column of the rows that has its keys. By default, that is the
            column with the same name, or the only one.
        dry_run: True to search the files and count the rows without changing anything.
        wait_seconds: the longest time to wait for compactions and the server's cleaner.
        watermark_table: the table of the journal, ``database.table``; created if it does not exist. If None,
            ``mutation_watermarks`` in the database of the first table by name.
        signature_key: the content of a key file that signs the report; see
            :mod:`mutation_api.upkeep.erasure.report`. If None, it is not signed.
        threads: number of files to search at a time. If None, as many as the storage serves well.
        compact: ``hive`` to let the server's workers compact, ``local`` for this process (before Hive 4
            without the server's queue, see :mod:`mutation_api.upkeep.unqueued_compaction`), ``auto`` for this
            process on Hive 4.
        at_once: number of partitions that this process compacts at once.
        progress: called with a line when something changes.
        clock: measures the wait; for tests.

    Returns:
        The report. Call its ``to_dict()`` and keep it.

    Raises:
        ConfigurationError: If an argument is invalid.
        RecordLayoutError, RecordValueError: If a key is NULL, or a column cannot hold it; it is named.
        TableNotFoundError, TableNotMutableError: If a table does not exist, or cannot be changed.
        Other errors: See ``HiveTransaction.commit``. After any error the same call may be repeated.
    """
    wanted = {normal_full_name(table): column for table, column in columns.items()}
    if not wanted or len(wanted) < len(columns):
        raise ConfigurationError(f"columns: expected one key column for each table, got {dict(columns)}")
    if compact not in ("auto", "hive", "local"):
        raise ConfigurationError(f"compact={compact!r}: expected auto, hive or local")
    if at_once < 1:
        raise ConfigurationError(f"at_once={at_once}: expected at least 1")
    if signature_key is not None:
        signed({}, signature_key)  # refuse a wrong key before anything is done
    journal = normal_full_name(watermark_table or watermark_table_beside(min(wanted)))
    if journal in wanted:
        raise ConfigurationError(f"table {journal} is the journal, which holds no keys. Leave it out")
    given = keys_by_table(keys, wanted)
    clock = clock or SystemClock()
    with connect(metastore) as hive:
        tables = {name: KeyedTable.of(metastore, name, wanted[name], given[name]) for name in sorted(wanted)}
        run = ErasureRun(
            metastore,
            hive,
            tables,
            journal,
            threads,
            _compactor(metastore, compact, tables),
            at_once,
            progress,
            clock,
            deadline=clock.now() + wait_seconds,
        )
        report = run.dry() if dry_run else run.run()
    if signature_key is None:
        return report
    return dataclasses.replace(report, signature=signed(report.to_dict(), signature_key))


def _compactor(metastore: MetastoreClient, compact: str, tables: Iterable[str]) -> Compactor:
    """Return who compacts. Raise ConfigurationError if Hive's compactor may disturb this process."""
    if metastore.capabilities().has_compaction_workers:
        return Compactor.HIVE if compact == "hive" else Compactor.QUEUE
    if compact != "local":
        return Compactor.HIVE
    for table in tables:
        with metastore_errors_as_ours(f"could not look up table {table}"):
            check_initiator(metastore, *split_full_name(table), f"table {table}")
    return Compactor.PAST_QUEUE
