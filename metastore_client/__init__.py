"""Everything said to a Hive metastore; knows nothing of Spark, ORC or mutations.

with metastore_client.connect("thrift://host:9083") as client:
    print(client.get_table("default", "t"))
"""

from metastore_client.capabilities import Capabilities
from metastore_client.client import MetastoreClient
from metastore_client.delegation_token import DelegationToken
from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidConfigurationError,
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    MissingExtraError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTxnError,
    SecureConnectionError,
    TxnAbortedError,
    TxnOpenError,
    UnsupportedByServerError,
)
from metastore_client.hive_site import Address, MetastoreConfig, UriSelection
from metastore_client.java import JavaNotFoundError
from metastore_client.model import (
    ColumnInfo,
    CompactionInfo,
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockComponent,
    LockInfo,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    OpenTxns,
    PartitionInfo,
    TableInfo,
    TxnInfo,
    TxnState,
    WriteNotification,
)
from metastore_client.thrift_client import ThriftMetastoreClient, connect
from metastore_client.transport.security import (
    HttpConfig,
    KerberosLogin,
    PlainLogin,
    Protection,
    TlsConfig,
    TokenLogin,
)
from metastore_client.valid_ids import RangeValidity, ValidIdList, ValidTxnList, ValidWriteIdList

__all__ = [
    "Address",
    "AlreadyExistsError",
    "Capabilities",
    "ColumnInfo",
    "CompactionInfo",
    "CompactionType",
    "DataOperationType",
    "DelegationToken",
    "EmbeddedMetastore",
    "HeartbeatResult",
    "HttpConfig",
    "InvalidConfigurationError",
    "InvalidRequestError",
    "JavaNotFoundError",
    "KerberosLogin",
    "LockComponent",
    "LockInfo",
    "LockLevel",
    "LockRequest",
    "LockResponse",
    "LockState",
    "LockType",
    "MetastoreClient",
    "MetastoreConfig",
    "MetastoreError",
    "MetastoreUnavailableError",
    "MissingExtraError",
    "NoSuchLockError",
    "NoSuchObjectError",
    "NoSuchTxnError",
    "OpenTxns",
    "PartitionInfo",
    "PlainLogin",
    "Protection",
    "RangeValidity",
    "SecureConnectionError",
    "TableInfo",
    "ThriftMetastoreClient",
    "TlsConfig",
    "TokenLogin",
    "TxnAbortedError",
    "TxnInfo",
    "TxnOpenError",
    "TxnState",
    "UnsupportedByServerError",
    "UriSelection",
    "ValidIdList",
    "ValidTxnList",
    "ValidWriteIdList",
    "WriteNotification",
    "connect",
]
