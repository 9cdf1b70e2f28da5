"""Delegation tokens of Hadoop: the string that a metastore returns, and the files that hold tokens.

Files of tokens contain protobuf messages. They are read without generated classes, as field numbers and
values in their order.

Source: org.apache.hadoop.security.token.Token and Credentials, WritableUtils.writeVInt, Security.proto
    (CredentialsProto); protobuf.dev, "Encoding"; checked with tokens of real servers in
    test_transport_judged.py and test_hdfs_kerberos.py of tests/integration.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from metastore_client.errors import InvalidConfigurationError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def fields(message: BinaryIO) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field.

    A value is a number, or bytes that may be a message, a string or fixed bytes.

    Raises:
        EOFError: If the message is truncated.
        ValueError: If the message is not protobuf.
    """
    while first := message.read(1):
        tag = _read_varint(message, first)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            yield number, _read_varint(message)
        elif kind == _BYTES:
            yield number, read_delimited(message)
        elif kind in (_FIXED64, _FIXED32):
            yield number, _exactly(message, 8 if kind == _FIXED64 else 4)
        else:
            raise ValueError(f"a field has the unsupported wire type {kind}")


def texts(message: BinaryIO) -> dict[int, bytes]:
    """Return the fields that are bytes, by number. Keep the last value of a repeated field, as protobuf does.

    Raises:
        EOFError: If the message is truncated.
        ValueError: If the message is not protobuf.
    """
    return {number: value for number, value in fields(message) if isinstance(value, bytes)}


def read_delimited(message: BinaryIO) -> bytes:
    """Read bytes that follow their own length.

    Raises:
        EOFError: If the message is truncated.
        ValueError: If the length is not protobuf.
    """
    return _exactly(message, _read_varint(message))


def _read_varint(message: BinaryIO, first: bytes = b"") -> int:
    value = 0
    for position in range(_LONGEST_VARINT):
        byte = (first or _exactly(message, 1))[0]
        first = b""
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value
    raise ValueError("a variable-length number has more than ten bytes")


def _exactly(message: BinaryIO, count: int) -> bytes:
    found = message.read(count)
    if len(found) < count:
        raise EOFError
    return found


METASTORE_KIND = "HIVE_DELEGATION_TOKEN"

_FILE_MAGIC = b"HDTS"
_WRITABLE_VERSION, _PROTOBUF_VERSION = 0, 1
_CREDENTIALS_TOKEN, _TOKEN_WITHIN = 1, 2
_IDENTIFIER, _PASSWORD, _KIND, _SERVICE = 1, 2, 3, 4
"""Field numbers of CredentialsProto, CredentialsKVProto and TokenProto."""


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token. ``identifier`` names its user, and ``password`` authenticates it."""

    identifier: bytes
    password: bytes = field(repr=False)
    kind: str = METASTORE_KIND
    service: str = ""

    @classmethod
    def from_text(cls, text: str) -> DelegationToken:
        """Read the URL-safe string that ``get_delegation_token`` returns.

        Raises:
            InvalidConfigurationError: If the string is not a token.
        """
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return _read_token(io.BytesIO(data))
        except (binascii.Error, EOFError, ValueError) as error:
            raise InvalidConfigurationError(f"not a delegation token: {error or 'it is truncated'}") from None

    @property
    def last_millis(self) -> int:
        """The latest time at which the token can expire, in milliseconds since 1970.

        Without renewals it expires earlier.

        Raises:
            InvalidConfigurationError: If the identifier is not that of a delegation token.
        """
        file = io.BytesIO(self.identifier)
        try:
            _exact_bytes(file, 1)  # the version
            for _ in ("owner", "renewer", "real user"):
                _exact_bytes(file, _read_length(file))
            _read_length(file)  # when it was issued
            return _read_length(file)
        except EOFError:
            raise InvalidConfigurationError(
                f"delegation token of kind {self.kind} for {self.service} is damaged"
            ) from None

    def is_for_metastore(self, signature: str) -> bool:
        """Return True if the token is for the metastore with this signature (``hive.metastore.token.…``)."""
        return self.kind == METASTORE_KIND and self.service == signature


def read_token_file(path: Path) -> list[DelegationToken]:
    """Read the tokens of a credentials file, such as the one that HADOOP_TOKEN_FILE_LOCATION names.

    Raises:
        InvalidConfigurationError: If the file cannot be read or is not in one of Hadoop's formats.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidConfigurationError(f"cannot read the delegation tokens: {error}") from error
    return tokens_in(data, str(path))


def tokens_in(data: bytes, name: str) -> list[DelegationToken]:
    """Return the tokens in the content of a credentials file. Errors name the file as ``name``.

    Raises:
        InvalidConfigurationError: If the content is not in one of Hadoop's formats.
    """
    file = io.BytesIO(data)
    try:
        if file.read(4) != _FILE_MAGIC:
            raise InvalidConfigurationError(f"{name} is not a Hadoop credentials file")
        version = _exact_bytes(file, 1)[0]
        if version == _WRITABLE_VERSION:
            return [_read_named_token(file) for _ in range(_read_length(file))]
        if version == _PROTOBUF_VERSION:
            return _tokens_of_message(read_delimited(file))
    except (EOFError, ValueError) as error:
        raise InvalidConfigurationError(f"{name} is damaged: {error or 'it is truncated'}") from None
    raise InvalidConfigurationError(
        f"{name} contains Hadoop credentials in format {version}; only formats 0 and 1 are supported"
    )


def _tokens_of_message(message: bytes) -> list[DelegationToken]:
    return [
        _token_of_message(texts(io.BytesIO(entry)).get(_TOKEN_WITHIN, b""))
        for number, entry in fields(io.BytesIO(message))
        if number == _CREDENTIALS_TOKEN and isinstance(entry, bytes)
    ]


def _token_of_message(message: bytes) -> DelegationToken:
    found = texts(io.BytesIO(message))
    identifier, password, kind, service = (
        found.get(number, b"") for number in (_IDENTIFIER, _PASSWORD, _KIND, _SERVICE)
    )
    return DelegationToken(identifier, password, kind.decode("utf-8"), service.decode("utf-8"))


def _read_named_token(file: BinaryIO) -> DelegationToken:
    _exact_bytes(file, _read_length(file))  # the alias
    return _read_token(file)


def _read_token(file: BinaryIO) -> DelegationToken:
    identifier, password, kind, service = (_exact_bytes(file, _read_length(file)) for _ in range(4))
    return DelegationToken(identifier, password, kind.decode("utf-8"), service.decode("utf-8"))


def _read_length(file: BinaryIO) -> int:
    """Read Hadoop's variable-length number: one byte from -112 up, otherwise -112 - n and then n bytes."""
    first = int.from_bytes(_exact_bytes(file, 1), "big", signed=True)
    if first >= 0:
        return first
    if not -120 <= first < -112:
        raise EOFError("a length is negative")
    return int.from_bytes(_exact_bytes(file, -112 - first), "big")


def _exact_bytes(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise EOFError
    return found
