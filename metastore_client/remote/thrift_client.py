"""The metastore over Thrift: :class:`ThriftMetastoreClient`.

:mod:`~metastore_client.remote.thrift_calls` makes one call. :mod:`~metastore_client.remote.thrift_tables` and
:mod:`~metastore_client.remote.thrift_transactions` define the calls, and which of them are repeated when the
connection breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from metastore_client.errors import InvalidRequestError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_tables import TableCalls
from metastore_client.remote.thrift_transactions import TransactionCalls

__all__ = ["ThriftMetastoreClient", "connect"]


def connect(
    target: MetastoreConfig | str | Mapping[str, str] | Path | None = None, *, user: str | None = None
) -> ThriftMetastoreClient:
    """Connect to a metastore and probe its capabilities.

    Args:
        target: ``thrift://host:port`` (several with commas), a :class:`MetastoreConfig`, the keys of a
            hive-site.xml, the path of one, or None for the one in HIVE_CONF_DIR or HADOOP_CONF_DIR.
        user: our name on the server; default: HADOOP_USER_NAME, else the user of this process.

    Raises:
        InvalidConfigurationError: the target is invalid.
        MetastoreUnavailableError: no server answered.
    """
    client = ThriftMetastoreClient(MetastoreConfig.load(target, user=user))
    try:
        client.capabilities()
    except BaseException:
        client.close()
        raise
    return client


class ThriftMetastoreClient(TableCalls, TransactionCalls):
    """A :class:`~metastore_client.client.MetastoreClient` on a real server.

    May be used by several threads; each has its own connection, made at its first call. A context manager.
    """

    def get_config_value(self, name: str, default: str) -> str:
        """See :meth:`MetastoreClient.get_config_value`; hive-site.xml has what the server does not tell."""
        default = self.config.site.get(name, default)
        told = self._pool.get().settings
        if (name, default) not in told:
            try:
                told[name, default] = self._call("get_config_value", name, default, repeat=True).text()
            except InvalidRequestError:  # the server does not report this key to clients
                told[name, default] = default
        return told[name, default]
