"""An in-memory metastore for tests, including tests of your own code.

:class:`InMemoryMetastore` follows the rules of Hive's transaction handler (ids, write ids, locks, recorded
components, conflict check at commit, timeouts) and passes the same contract tests as real servers. It is
server and client in one object. Pass it to any function that expects a
:class:`~metastore_client.client.MetastoreClient`. Its capabilities decide which Hive it behaves like::

    InMemoryMetastore()                               # Hive 2.3
    InMemoryMetastore(capabilities=HIVE_3_1)
    InMemoryMetastore(capabilities=HIVE_4_1)

    metastore = InMemoryMetastore()
    metastore.create_table(TableInfo("default", "t", (ColumnInfo("id", "int"),), ...))
    metastore.fail_next("commit_txn", MetastoreUnavailableError("connection cut"), after=True)

Two faults of real servers are omitted on purpose. Real servers grant a second ``lock`` in one transaction
ahead of the transaction's own waiting one (2.3, 3.1), and they compare names with case (2.3).

Source: TxnHandler and CompactionTxnHandler of Hive 2.3. For 3.1 and 4.1, the behaviour of 3.1.3 and 4.1.0
    (tests/contract).
"""

from metastore_client.testing.in_memory_metastore import InMemoryMetastore
from metastore_client.testing.server_calls import HIVE_2_3, HIVE_3_1, HIVE_4_1, TXN_TIMEOUT_SECONDS_DEFAULT

__all__ = ["HIVE_2_3", "HIVE_3_1", "HIVE_4_1", "TXN_TIMEOUT_SECONDS_DEFAULT", "InMemoryMetastore"]
