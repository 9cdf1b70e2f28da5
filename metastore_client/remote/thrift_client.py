"""The metastore over Thrift: :class:`ThriftMetastoreClient`.

:mod:`~metastore_client.remote.thrift_calls` makes a single call.
:mod:`~metastore_client.remote.thrift_tables` and :mod:`~metastore_client.remote.thrift_transactions` define
the calls, and which of them are repeated when the connection breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metastore_client.errors import InvalidRequestError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_compactions import CompactionCalls
from metastore_client.remote.thrift_tables import TableCalls
from metastore_client.remote.thrift_transactions import TransactionCalls


def open_client(
    target: MetastoreConfig | str | Mapping[str, str] | Path | None = None, *, user: str | None = None
) -> ThriftMetastoreClient:
    """Connect to a metastore and probe its capabilities.

    Args:
        target: ``thrift://host:port`` (several are separated by commas), a :class:`MetastoreConfig`, the keys
            of a hive-site.xml, or the path of one. If None, the file in HIVE_CONF_DIR or HADOOP_CONF_DIR.
        user: user name on the server. If None, HADOOP_USER_NAME, otherwise the user of this process.

    Raises:
        InvalidConfigurationError: If the target is invalid.
        MetastoreUnavailableError: If no server answered.
    """
    client = ThriftMetastoreClient(MetastoreConfig.load(target, user=user))
    try:
        client.capabilities()
    except BaseException:
        client.close()
        raise
    return client


class ThriftMetastoreClient(TableCalls, TransactionCalls, CompactionCalls):
    """A :class:`~metastore_client.client.MetastoreClient` for a real server. It is a context manager.

    Several threads may use it. Each thread has its own connection, which is made at its first call.
    """

    def get_config_value(self, name: str, default: str) -> str:
        """Return a configuration value of the server, or the default if the server refuses to report it.

        See :meth:`MetastoreClient.get_config_value`. Settings that it hides come from hive-site.xml.
        """
        default = self.config.site.get(name, default)
        told = self._pool.get().settings
        if (name, default) not in told:
            try:
                told[name, default] = self._call("get_config_value", name, default, repeat=True).text()
            except InvalidRequestError:  # the server does not report this key to clients
                told[name, default] = default
        return told[name, default]
