"""Hadoop's delegation tokens: the text form that a metastore gives, and the file that Hadoop keeps them in.

Source: org.apache.hadoop.security.token.Token and Credentials, WritableUtils.writeVInt; checked with a token
    of a real server in tests/integration/test_transport_judged.py.
"""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from metastore_client.errors import InvalidConfigurationError

__all__ = ["DelegationToken", "read_token_file"]

METASTORE_KIND = "HIVE_DELEGATION_TOKEN"

_FILE_MAGIC = b"HDTS"
_WRITABLE_VERSION = 0


@dataclass(frozen=True)
class DelegationToken:
    """A token: ``identifier`` says for whom it is, ``password`` proves it."""

    identifier: bytes
    password: bytes = field(repr=False)
    kind: str = METASTORE_KIND
    service: str = ""

    @classmethod
    def from_text(cls, text: str) -> DelegationToken:
        """Read the url-safe text that ``get_delegation_token`` gives.

        Raises:
            InvalidConfigurationError: it is no such text.
        """
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return _read_token(io.BytesIO(data))
        except (binascii.Error, EOFError, ValueError) as error:
            raise InvalidConfigurationError(f"not a delegation token: {error or 'it ends early'}") from None

    def is_for_metastore(self, signature: str) -> bool:
        """Whether it is for a metastore, and for the one of this signature (``hive.metastore.token.…``)."""
        return self.kind == METASTORE_KIND and self.service == signature


def read_token_file(path: Path) -> list[DelegationToken]:
    """Read the tokens of a credentials file, as HADOOP_TOKEN_FILE_LOCATION names one.

    Raises:
        InvalidConfigurationError: it cannot be read or is not in the format that every Hadoop reads.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != _FILE_MAGIC:
                raise InvalidConfigurationError(f"{path} is no file of Hadoop credentials")
            version = _exactly(file, 1)[0]
            if version != _WRITABLE_VERSION:
                raise InvalidConfigurationError(
                    f"{path} holds Hadoop credentials in format {version}; only format 0 is read"
                )
            return [_read_named_token(file) for _ in range(_read_length(file))]
    except (EOFError, UnicodeDecodeError) as error:
        raise InvalidConfigurationError(f"{path} is damaged: {error or 'it ends early'}") from None
    except OSError as error:
        raise InvalidConfigurationError(f"the delegation tokens cannot be read: {error}") from error


def _read_named_token(file: BinaryIO) -> DelegationToken:
    _exactly(file, _read_length(file))  # the alias
    return _read_token(file)


def _read_token(file: BinaryIO) -> DelegationToken:
    identifier, password, kind, service = (_exactly(file, _read_length(file)) for _ in range(4))
    return DelegationToken(identifier, password, kind.decode("utf-8"), service.decode("utf-8"))


def _read_length(file: BinaryIO) -> int:
    """Read Hadoop's variable-length number: one byte from -112 up, else -112 - n and then n bytes."""
    first = int.from_bytes(_exactly(file, 1), "big", signed=True)
    if first >= 0:
        return first
    if not -120 <= first < -112:
        raise EOFError("a length is negative")
    return int.from_bytes(_exactly(file, -112 - first), "big")


def _exactly(file: BinaryIO, count: int) -> bytes:
    found = file.read(count)
    if len(found) < count:
        raise EOFError
    return found
