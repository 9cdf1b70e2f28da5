"""Errors of the metastore client, and the root of the errors of both packages.

::

    HiveError                             root of both packages: one ``except`` catches every error
    └─ MetastoreError                     root of the metastore client's errors
        ├─ MetastoreUnavailableError      no server answered, or the connection broke (it may have worked)
        │   └─ SecureConnectionError      the server was reached, but TLS or login failed (nothing was done)
        ├─ InvalidConfigurationError      an address or a configuration value is not valid
        │   └─ MissingExtraError          a required package is not installed (names the extra to install)
        ├─ NoSuchObjectError              the database, table or partition does not exist
        ├─ AlreadyExistsError             the database, table or partition already exists
        ├─ InvalidAnswerError             the server's answer lacks a field or contains an invalid value
        ├─ InvalidRequestError            the server refused the request's contents (bad names, bad values)
        ├─ NoSuchTxnError                 it never existed, is committed, or was aborted and removed
        ├─ TxnAbortedError                the transaction is aborted, for example by a write conflict
        ├─ NoSuchLockError                the lock no longer exists
        ├─ TxnOpenError                   the lock belongs to an open transaction
        └─ UnsupportedByServerError       this server does not have the call

:mod:`metastore_client.remote.thrift_calls` turns Thrift exceptions into one of these, always with ``from``.
``mutation_api.MutationError``, the root of the other package's errors, is a HiveError too.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExistsError",
    "HiveError",
    "InvalidAnswerError",
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


class HiveError(Exception):
    """Root of all errors of ``metastore_client`` and ``mutation_api``; never raised itself.

    How to fix: see the subclass. Catch this class where a program does the same for every error.
    """


class MetastoreError(HiveError):
    """Root of the metastore client's errors. Raised itself for server errors that have only a message.

    How to fix: read the message, which comes from the server. The server's log has the stack trace.
    """


class MetastoreUnavailableError(MetastoreError):
    """Raised when no server answered, or when the connection broke during a call.

    ``outcome_unknown`` is true if the call may have taken effect: it was sent, but the answer was lost. If it
    is false, the call never reached a server.

    How to fix: compare the address in the message with ``hive-site.xml`` or with the option. Check that the
    metastore is running and that no firewall blocks the connection. If a port accepts connections and closes
    them immediately, it may expect TLS or Kerberos.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class SecureConnectionError(MetastoreUnavailableError):
    """Raised when a server was reached, but TLS or the login failed on either side. No call was made.

    How to fix: compare the settings for TLS, SASL and passwords in ``hive-site.xml`` with the server's. For
    Kerberos, look at the output of ``klist``.
    """


class InvalidConfigurationError(MetastoreError):
    """Raised when an address or a configuration value is not valid or requires an unsupported feature.

    How to fix: correct the option or the key of ``hive-site.xml`` that the message names.
    """


class MissingExtraError(InvalidConfigurationError):
    """Raised when the configuration requires a package that is not installed.

    How to fix: install the extra that the message names, such as ``pip install
    "hive-mutation-api[kerberos]"``.
    """


class NoSuchObjectError(MetastoreError):
    """Raised when a database, table or partition does not exist.

    How to fix: check the name in the message, and whether the metastore's address is that of the right
    server. ``hive-mutate create-table`` creates tables.
    """


class AlreadyExistsError(MetastoreError):
    """Raised when a database, table or partition already exists.

    How to fix: use the existing one, or choose another name.
    """


class InvalidAnswerError(MetastoreError):
    """Raised when the server's answer cannot be decoded, lacks a field, or contains an invalid value.

    No part of such an answer is used. If the call changes something, it has taken effect nevertheless.

    How to fix: check that the address in the message is that of a Hive metastore of a supported release. A
    proxy in between may change its answers. The server's log shows what it did.
    """


class InvalidRequestError(MetastoreError):
    """Raised when the server refuses the contents of a request.

    How to fix: correct what the message names, such as a name or a type that the server does not accept.
    """


class NoSuchTxnError(MetastoreError):
    """Raised when the transaction never existed, is committed, or was aborted and then removed.

    How to fix: check the number. ``hive-mutate show txns`` lists the transactions that are open or aborted.
    """


class TxnAbortedError(MetastoreError):
    """Raised when the transaction is aborted.

    How to fix: run the whole job again in a new transaction.
    """


class NoSuchLockError(MetastoreError):
    """Raised when the lock no longer exists.

    How to fix: run the whole job again. The lock ended with its transaction, which timed out or was aborted.
    """


class TxnOpenError(MetastoreError):
    """Raised when the lock belongs to an open transaction and therefore cannot be released alone.

    How to fix: commit or abort the transaction, which releases its locks.
    """


class UnsupportedByServerError(MetastoreError):
    """Raised when the server does not have the call.

    How to fix: see the compatibility page for what each release of Hive lacks. Check also whether a proxy of
    another kind stands in front of the metastore.
    """
