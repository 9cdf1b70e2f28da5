"""MutatorClientBuilder: collects the options of a client. No connection is made before ``connect()``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from metastore_client.client import MetastoreClient
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import ConfigurationError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import TableSpec, merge_specs, split_full_name
from mutation_api.transaction.clock import Clock, SystemClock
from mutation_api.transaction.listener import LockFailureListener
from mutation_api.transaction.lock import WriteLock
from mutation_api.transaction.mutator_client import ClientOptions, MutatorClient

LOCK_TIMEOUT_SECONDS_DEFAULT = 600.0

MetastoreTarget = MetastoreClient | MetastoreConfig | str | Mapping[str, str] | Path | None
"""A metastore's client, or an argument of :func:`metastore_client.remote.thrift_client.open_client`."""


class MutatorClientBuilder:
    """Builds a MutatorClient::

    MutatorClientBuilder()
        .metastore("thrift://host:9083")
        .add_sink_table("default", "t", create_partitions=True)
        .build()
    """

    def __init__(self) -> None:
        self._metastore: MetastoreTarget = None
        self._specs: list[TableSpec] = []
        self._user: str | None = None
        self._listener: LockFailureListener | None = None
        self._time_zone: str | None = None
        self._lock_timeout_seconds = LOCK_TIMEOUT_SECONDS_DEFAULT
        self._write_lock = WriteLock.EXCLUSIVE
        self._clock: Clock = SystemClock()

    def metastore(self, target: MetastoreTarget) -> MutatorClientBuilder:
        """Set the metastore.

        Args:
            target: ``thrift://host:port`` (several separated by commas), the keys of a hive-site.xml, its
                path, a MetastoreConfig, or an existing client, which you close yourself. If None (the
                default), the hive-site.xml in HIVE_CONF_DIR or HADOOP_CONF_DIR is read.
        """
        self._metastore = target
        return self

    def user(self, name: str) -> MutatorClientBuilder:
        """Set the user name for the metastore and lists of transactions. Default: this process's user."""
        self._user = name
        return self

    def add_source_table(self, name: str, table: str | None = None) -> MutatorClientBuilder:
        """Add a table that the transactions read. It is locked against DDL but not against writers.

        Args:
            name: ``database.table``, or only the database if ``table`` is given.
            table: the table's name without the database, as in the Java API.
        """
        return self._add(TableSpec(*_names(name, table), TableRole.SOURCE))

    def add_sink_table(
        self,
        name: str,
        table: str | None = None,
        create_partitions: bool = False,
        *,
        insert_only: bool = False,
    ) -> MutatorClientBuilder:
        """Add a table that the transactions write.

        Args:
            name: ``database.table``, or only the database if ``table`` is given.
            table: the table's name without the database, as in the Java API.
            create_partitions: True to create missing partitions; otherwise they are refused.
            insert_only: True if the transactions will only append. Other inserters then need not wait, and
                commits cannot conflict. Updates, deletes and merges are refused.
        """
        spec = TableSpec(
            *_names(name, table),
            TableRole.SINK,
            create_partitions=create_partitions,
            insert_only=insert_only,
        )
        return self._add(spec)

    def lock_failure_listener(self, listener: LockFailureListener) -> MutatorClientBuilder:
        """Set the listener that is called when a running transaction is lost."""
        self._listener = listener
        return self

    def time_zone(self, name: str) -> MutatorClientBuilder:
        """Set the time zone of Hive's own processes, such as ``Europe/Berlin``.

        Needed only for tables clustered by a timestamp column: Hive 2's bucket hash depends on it.

        Raises ConfigurationError for an unknown zone.
        """
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigurationError(f"not a time zone: {name!r}") from error
        self._time_zone = name
        return self

    def lock_timeout_seconds(self, seconds: float) -> MutatorClientBuilder:
        """Set the longest wait for the lock, > 0. Default: LOCK_TIMEOUT_SECONDS_DEFAULT.

        Raises ConfigurationError if it is not above 0.
        """
        if not seconds > 0:
            raise ConfigurationError(f"lock_timeout_seconds must be above 0, not {seconds}")
        self._lock_timeout_seconds = seconds
        return self

    def write_lock(self, mode: str) -> MutatorClientBuilder:
        """Set whether writers of one table wait for each other. Only Hive 4 servers offer the choice.

        Args:
            mode: ``exclusive`` (the default): writers wait, so a long job cannot lose its work. Inserts of
                Hive's own SQL wait too. ``optimistic``: writers do not wait. If two transactions write the
                same partition, or both insert by a key that does not include the partition, the first to
                commit wins, and the other gets a WriteConflictError. Transactions with ``insert_only`` never
                conflict.

        Raises ConfigurationError for another mode.
        """
        try:
            self._write_lock = WriteLock(mode)
        except ValueError:
            known = " or ".join(repr(w.value) for w in WriteLock)
            raise ConfigurationError(f"write_lock must be {known}, not {mode!r}") from None
        return self

    def clock(self, clock: Clock) -> MutatorClientBuilder:
        """Set the clock for waits and heartbeats; for tests."""
        self._clock = clock
        return self

    def build(self) -> MutatorClient:
        """Return the client, which is not connected yet.

        Raises ConfigurationError for contradictory tables.
        """
        user = user_of(self._metastore, self._user)
        open_metastore, owns_metastore = opener_of(self._metastore, user)
        return MutatorClient(
            open_metastore,
            owns_metastore=owns_metastore,
            specs=merge_specs(self._specs),
            options=ClientOptions(
                user=user,
                time_zone=self._time_zone,
                lock_timeout_seconds=self._lock_timeout_seconds,
                listener=self._listener,
                write_lock=self._write_lock,
                clock=self._clock,
            ),
        )

    def _add(self, spec: TableSpec) -> MutatorClientBuilder:
        self._specs.append(spec)
        return self


def _names(name: str, table: str | None) -> tuple[str, str]:
    return split_full_name(name if table is None else f"{name}.{table}")


def user_of(target: object, user: str | None) -> str | None:
    """Return the given user, otherwise that of the target if it is a MetastoreConfig."""
    return target.user if user is None and isinstance(target, MetastoreConfig) else user


def opener_of(target: MetastoreTarget, user: str | None) -> tuple[Callable[[], MetastoreClient], bool]:
    """Return a function that creates the metastore's client, and whether the caller must close the client."""
    if target is None or isinstance(target, (str, Path, Mapping, MetastoreConfig)):
        return functools.partial(open_client, target, user=user), True
    client = target
    return (lambda: client), False
