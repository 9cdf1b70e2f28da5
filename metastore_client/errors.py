"""Errors of the metastore client.

::

    MetastoreError                    root
    ├─ MetastoreUnavailableError      no server answered, or the connection broke; the call may have worked
    │   └─ SecureConnectionError      it was reached, but TLS or the login failed; nothing was done
    ├─ InvalidConfigurationError      an address or a configuration value makes no sense
    │   └─ MissingExtraError          it needs a package that is not installed; names the extra to install
    ├─ NoSuchObjectError              database, table or partition does not exist
    ├─ AlreadyExistsError             it exists already
    ├─ InvalidAnswerError             the server's answer lacks something, or holds what it cannot hold
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


class MetastoreError(Exception):
    """Root of the metastore client's errors; raised itself for faults that have only a text.

    What to do: read the text, which is the server's own; its log has the stack trace.
    """


class MetastoreUnavailableError(MetastoreError):
    """No server answered, or the connection broke during a call.

    ``outcome_unknown`` is true if the call may have taken effect: it was sent and the answer was lost.
    False means that it never reached a server.

    What to do: compare the address in the message with ``hive-site.xml`` or the option; see that the
    metastore runs and no firewall is between. A port that answers and hangs up at once may expect TLS or
    Kerberos.
    """

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class SecureConnectionError(MetastoreUnavailableError):
    """A server was reached, but TLS or the login failed on either side. No call was made.

    What to do: compare what ``hive-site.xml`` says of TLS, SASL and passwords with the server's settings; for
    Kerberos look at ``klist``.
    """


class InvalidConfigurationError(MetastoreError):
    """An address or a configuration value makes no sense, or asks for something that is not supported.

    What to do: correct the option or the key of ``hive-site.xml`` that the message names.
    """


class MissingExtraError(InvalidConfigurationError):
    """The configuration asks for something that needs a package which is not installed.

    What to do: install the extra that the message names, such as ``pip install
    "hive-mutation-api[kerberos]"``.
    """


class NoSuchObjectError(MetastoreError):
    """A database, table or partition does not exist.

    What to do: look at the name in the message and at the metastore's address: is it the right server?
    ``hive-mutate create-table`` makes tables.
    """


class AlreadyExistsError(MetastoreError):
    """A database, table or partition exists already.

    What to do: use the one that is there, or choose another name.
    """


class InvalidAnswerError(MetastoreError):
    """The server's answer cannot be decoded, lacks a field, or holds what that field cannot hold.

    Nothing of such an answer was used. A call that changes something has taken effect all the same.

    What to do: see whether the address in the message is that of a Hive metastore of a supported release; a
    proxy between may change its answers. The server's log says what it did.
    """


class InvalidRequestError(MetastoreError):
    """The server refused the contents of the request.

    What to do: correct what the message names, such as a name or a type that the server does not take.
    """


class NoSuchTxnError(MetastoreError):
    """The transaction never existed, is committed, or was aborted and then removed.

    What to do: see whether the number is right; ``hive-mutate show txns`` lists those that are open or
    aborted.
    """


class TxnAbortedError(MetastoreError):
    """The transaction is aborted.

    What to do: run the whole job again in a new transaction.
    """


class NoSuchLockError(MetastoreError):
    """The lock does not exist any more.

    What to do: run the whole job again: the lock ended with its transaction, which timed out or was aborted.
    """


class TxnOpenError(MetastoreError):
    """The lock belongs to an open transaction and cannot be released alone.

    What to do: commit or abort the transaction, which releases its locks.
    """


class UnsupportedByServerError(MetastoreError):
    """The server does not know this call.

    What to do: see the page of compatibility for what each release of Hive lacks, and whether a proxy of
    another kind stands before the metastore.
    """
