"""Errors of the metastore client.

::

    MetastoreError                    root
    ├─ MetastoreUnavailableError      no server answered, or the connection broke; the call may have worked
    │   └─ SecureConnectionError      it was reached, but TLS or the login failed; nothing was done
    ├─ InvalidConfigurationError      an address or a configuration value makes no sense
    │   └─ MissingExtraError          it needs a package that is not installed; names the extra to install
    ├─ NoSuchObjectError              database, table or partition does not exist
    ├─ AlreadyExistsError             it exists already
    ├─ InvalidRequestError            the server refused the request's contents (bad names, bad values)
    ├─ NoSuchTxnError                 never existed, is committed, or was aborted and removed
    ├─ TxnAbortedError                the transaction is aborted; at commit perhaps by a write conflict
    ├─ NoSuchLockError                the lock is gone
    ├─ TxnOpenError                   the lock belongs to an open transaction
    └─ UnsupportedByServerError       this server does not have the call

Thrift exceptions become one of these in :mod:`metastore_client.remote.thrift_calls`, always with ``from``.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExistsError",
    "InvalidConfigurationError",
    "InvalidRequestError",
    "MetastoreError",
    "MetastoreUnavailableError",
    "MissingExtraError",
    "NoSuchLockError",
    "NoSuchObjectError",
    "NoSuchTxnError",
    "SecureConnectionError",
    "TxnAbortedError",
    "TxnOpenError",
    "UnsupportedByServerError",
]


class MetastoreError(Exception):
    """Root of the metastore client's errors; raised itself for faults that have only a text."""


class MetastoreUnavailableError(MetastoreError):
    """No server answered, or the connection broke during a call.

    ``outcome_unknown`` is true if the call may have taken effect: it was sent and the answer was lost.
    False means that it never reached a server.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class SecureConnectionError(MetastoreUnavailableError):
    """A server was reached, but TLS or the login failed on either side. No call was made."""


class InvalidConfigurationError(MetastoreError):
    """An address or a configuration value makes no sense, or asks for something that is not supported."""


class MissingExtraError(InvalidConfigurationError):
    """The configuration asks for something that needs a package which is not installed."""


class NoSuchObjectError(MetastoreError):
    """A database, table or partition does not exist."""


class AlreadyExistsError(MetastoreError):
    """A database, table or partition exists already."""


class InvalidRequestError(MetastoreError):
    """The server refused the contents of the request."""


class NoSuchTxnError(MetastoreError):
    """The transaction never existed, is committed, or was aborted and then removed."""


class TxnAbortedError(MetastoreError):
    """The transaction is aborted."""


class NoSuchLockError(MetastoreError):
    """The lock does not exist any more."""


class TxnOpenError(MetastoreError):
    """The lock belongs to an open transaction and cannot be released alone."""


class UnsupportedByServerError(MetastoreError):
    """The server does not know this call."""
