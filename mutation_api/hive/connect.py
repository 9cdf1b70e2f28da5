"""``connect``: open a connection to a metastore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metastore_client.errors import InvalidConfigurationError, MetastoreError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote import thrift_client
from mutation_api.errors import ConfigurationError, ConnectionFailedError
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_transaction import ConnectionOptions
from mutation_api.orc.read.open_files import SMALL_FILES
from mutation_api.storage.hadoop_settings import log_in_as_spark
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MetastoreTarget, user_of
from mutation_api.transaction.listener import LockFailureListener
from mutation_api.transaction.lock import WriteLock
from mutation_api.transaction.mutator_client import ask_settings
from mutation_api.write.local_plan import LocalOptions

SMALL_FILES_PART = 4
"""The fraction of a connection's memory for small files that it has read is 1/SMALL_FILES_PART."""


def connect(
    metastore: MetastoreTarget = None,
    *,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    write_lock: str = WriteLock.EXCLUSIVE.value,
    time_zone: str | None = None,
    lock_failure_listener: LockFailureListener | None = None,
    local: LocalOptions | None = None,
) -> Hive:
    """Connect to a metastore. Use the result as a context manager, or call its ``close()``.

    Args:
        metastore: ``thrift://host:port`` (several separated by commas), the keys of a hive-site.xml, its
            path, a MetastoreConfig, or an existing client, which you close yourself. If None, the
            hive-site.xml in HIVE_CONF_DIR or HADOOP_CONF_DIR is read.
        user: user name for the metastore and for lists of transactions. If None, this process's user.
        lock_timeout_seconds: the longest wait for a lock, > 0.
        write_lock: ``exclusive``, or on Hive 4 ``optimistic``; see MutatorClientBuilder.write_lock.
        time_zone: time zone of Hive's own processes, needed only for tables clustered by a timestamp column.
        lock_failure_listener: called when a running transaction is lost. Without it, the next step of the
            transaction raises the error, at the latest its commit.
        local: memory and threads of the local engine.

    Raises:
        ConfigurationError: If an option is invalid.
        ConnectionFailedError: If no metastore could be reached.
    """
    user = user_of(metastore, user)
    options = ConnectionOptions(
        user, lock_timeout_seconds, write_lock, time_zone, lock_failure_listener, local or LocalOptions()
    )
    options.builder()  # raises if an option is invalid
    SMALL_FILES.allow(options.local.memory_bytes // SMALL_FILES_PART)
    hive = _opened(metastore, options)
    try:
        ask_settings(hive.metastore)
    except BaseException:
        hive.close()
        raise
    return hive


def _opened(metastore: MetastoreTarget, options: ConnectionOptions) -> Hive:
    if not isinstance(metastore, str | Path | Mapping | MetastoreConfig | None):
        return Hive(metastore, options, owns_metastore=False)
    log_in_as_spark()
    try:
        return Hive(thrift_client.open_client(metastore, user=options.user), options, owns_metastore=True)
    except InvalidConfigurationError as error:
        raise ConfigurationError(str(error)) from error
    except MetastoreError as error:
        raise ConnectionFailedError(f"could not connect to the metastore: {error}") from error
