"""SASL as Thrift uses it: the login, its mechanisms, and frames that may be signed or encrypted.

A message of the login consists of a status byte, a length of four bytes and the body. After the login, a
frame consists of a length of four bytes and the body. The mechanisms are small objects (:class:`Mechanism`).

The mechanism GSSAPI is Kerberos through the machine's own library and the package ``gssapi``.

Source: TSaslTransport and TSaslClientTransport of libthrift; RFC 4616 (PLAIN), RFC 2831 (DIGEST-MD5) and
    RFC 4752 (GSSAPI). The names of Kerberos are built as HadoopThriftAuthBridge builds them.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import hashlib
import hmac
import io
import re
import secrets
import struct
from typing import Any, Protocol

from thrift.transport.TTransport import TTransportBase, TTransportException

from metastore_client.delegation_token import DelegationToken
from metastore_client.errors import MissingExtraError, SecureConnectionError
from metastore_client.transport.security import KerberosLogin, PlainLogin, Protection

MAX_LOGIN_MESSAGE_BYTES = 1 << 20
MAX_FRAME_BYTES = (1 << 31) - 1

_TOKEN_REALM = "default"
_TOKEN_DIGEST_URI = "null/default"
"""For token logins, Hadoop's servers have the service name ``null`` and the host ``default``."""


class Mechanism(Protocol):
    """The client's side of one login. It is used once."""

    name: str
    is_complete: bool
    """True if the client's side of the login is complete. The server's side may still be open."""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to the server's challenge. The first challenge is empty.

        Raises:
            SecureConnectionError: If the server did not authenticate itself or offers nothing that the client
                accepts.
        """

    def wrap(self, data: bytes) -> list[bytes]:
        """Protect outgoing data and return it as frames."""

    def unwrap(self, frame: bytes) -> bytes:
        """Check an incoming frame and return its content.

        Raises:
            SecureConnectionError: If the frame was changed in transit.
        """


class _Status(enum.IntEnum):
    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


def log_in(transport: Any, mechanism: Mechanism) -> SaslTransport:
    """Log in on a new connection.

    Args:
        transport: a connected Thrift transport.
        mechanism: the mechanism that authenticates.

    Raises:
        SecureConnectionError: If the server refuses, does not authenticate itself, or does not speak SASL.
        TTransportException: If the connection broke.
    """
    response = mechanism.respond(b"")
    _send(transport, _Status.START, mechanism.name.encode("ascii"))
    _send(transport, _Status.COMPLETE if mechanism.is_complete else _Status.OK, response)
    status = None
    while not mechanism.is_complete:
        status, challenge = _receive(transport, mechanism)
        response = mechanism.respond(challenge)
        if status is _Status.COMPLETE:
            break
        _send(transport, _Status.COMPLETE if mechanism.is_complete else _Status.OK, response)
    if status is not _Status.COMPLETE:
        status, _ = _receive(transport, mechanism)
    if not (mechanism.is_complete and status is _Status.COMPLETE):
        raise SecureConnectionError(
            f"SASL {mechanism.name}: the server ended the login before it was complete"
        )
    return SaslTransport(transport, mechanism)


def _send(transport: Any, status: _Status, body: bytes) -> None:
    transport.write(struct.pack(">BI", status, len(body)) + body)
    transport.flush()


def _receive(transport: Any, mechanism: Mechanism) -> tuple[_Status, bytes]:
    try:
        code, length = struct.unpack(">BI", transport.readAll(5))
        if code not in list(_Status) or length > MAX_LOGIN_MESSAGE_BYTES:
            raise SecureConnectionError(f"SASL {mechanism.name}: the server does not speak SASL")
        body: bytes = transport.readAll(length) if length else b""
    except TTransportException as error:
        if error.type != TTransportException.END_OF_FILE:
            raise
        raise SecureConnectionError(
            f"SASL {mechanism.name}: the server hung up during the login; see its log for the reason "
            "(it may not support SASL or this mechanism)"
        ) from error
    status = _Status(code)
    if status in (_Status.BAD, _Status.ERROR):
        said = body.decode("utf-8", errors="replace")
        raise SecureConnectionError(f"SASL {mechanism.name}: the server refuses the login: {said}")
    return status, body


class SaslTransport(TTransportBase):  # type: ignore[misc]
    """The transport after the login. It sends whole calls in frames, with the negotiated protection."""

    def __init__(self, transport: Any, mechanism: Mechanism) -> None:
        self._transport = transport
        self._mechanism = mechanism
        self._request = io.BytesIO()
        self._answer = io.BytesIO()

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return True if the server has not closed its end."""
        return bool(self._transport.isOpen())

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Append data to the next request."""
        self._request.write(data)

    def flush(self) -> None:
        """Send the request."""
        data = self._request.getvalue()
        self._request = io.BytesIO()
        for frame in self._mechanism.wrap(data):
            self._transport.write(struct.pack(">I", len(frame)) + frame)
        self._transport.flush()

    def read(self, count: int) -> bytes:
        """Return at most ``count`` bytes, and at least one."""
        found = self._answer.read(count)
        while not found and count:
            (length,) = struct.unpack(">I", self._transport.readAll(4))
            if length > MAX_FRAME_BYTES:
                raise TTransportException(
                    TTransportException.SIZE_LIMIT, f"SASL: frame too long: {length} bytes"
                )
            self._answer = io.BytesIO(self._mechanism.unwrap(self._transport.readAll(length)))
            found = self._answer.read(count)
        return found


class Plain:
    """The mechanism PLAIN: user and password in clear text (RFC 4616)."""

    name = "PLAIN"
    is_complete = False

    def __init__(self, login: PlainLogin) -> None:
        self._login = login

    def respond(self, challenge: bytes) -> bytes:
        """Return user and password, which form the first and only response."""
        self.is_complete = True
        return f"\0{self._login.user}\0{self._login.password}".encode()

    def wrap(self, data: bytes) -> list[bytes]:
        """Return the data unchanged: PLAIN protects nothing."""
        return [data]

    def unwrap(self, frame: bytes) -> bytes:
        """Return the frame unchanged: PLAIN protects nothing."""
        return frame


class DigestMd5:
    """The mechanism DIGEST-MD5: a shared secret that is not sent (RFC 2831). Hadoop uses it for tokens.

    Privacy would require broken ciphers (RC4, DES), so a server that insists on it is refused.

    Args:
        token: the delegation token.
        allowed: the protections that may be negotiated.
        nonce: the client's nonce. If None, a random one; tests pass a fixed one.
    """

    name = "DIGEST-MD5"
    is_complete = False

    def __init__(self, token: DelegationToken, allowed: Protection, *, nonce: str | None = None) -> None:
        self._user = base64.b64encode(token.identifier).decode("ascii")
        self._password = base64.b64encode(token.password).decode("ascii")
        self._allowed = allowed
        self._nonce = nonce or secrets.token_hex(16)
        self._expected: str | None = None
        self._keys: tuple[bytes, bytes] | None = None
        self._sent = self._received = 0

    def respond(self, challenge: bytes) -> bytes:
        """Answer the challenge, then check the server's answer to the client."""
        if not challenge:
            return b""
        said = _directives(challenge)
        if self._expected is None:
            return self._answer(said).encode("utf-8")
        if not hmac.compare_digest(said.get("rspauth", ""), self._expected):
            raise SecureConnectionError("SASL DIGEST-MD5: the server does not know the token's password")
        self.is_complete = True
        return b""

    def wrap(self, data: bytes) -> list[bytes]:
        """Sign the data if integrity was negotiated."""
        if self._keys is None:
            return [data]
        signed = data + self._signature(self._keys[0], self._sent, data)
        self._sent += 1
        return [signed]

    def unwrap(self, frame: bytes) -> bytes:
        """Check the signature if integrity was negotiated, and return the data."""
        if self._keys is None:
            return frame
        data = frame[:-16]
        if not hmac.compare_digest(frame[-16:], self._signature(self._keys[1], self._received, data)):
            raise SecureConnectionError("SASL DIGEST-MD5: a message was changed in transit")
        self._received += 1
        return data

    def _answer(self, said: dict[str, str]) -> str:
        realm, nonce = said.get("realm", _TOKEN_REALM), said.get("nonce", "")
        protection = self._choose(said.get("qop", "auth"))
        secret = _md5(f"{self._user}:{realm}:{self._password}") + f":{nonce}:{self._nonce}".encode()
        session_key = _md5(secret)
        tail = "" if protection == "auth" else ":" + "0" * 32
        middle = f"{nonce}:00000001:{self._nonce}:{protection}"
        response, self._expected = (
            _md5(f"{session_key.hex()}:{middle}:{_md5(f'{verb}:{_TOKEN_DIGEST_URI}{tail}').hex()}").hex()
            for verb in ("AUTHENTICATE", "")
        )
        if protection == "auth-int":
            phrase = b"Digest session key to %s signing key magic constant"
            self._keys = (
                _md5(session_key + phrase % b"client-to-server"),
                _md5(session_key + phrase % b"server-to-client"),
            )
        return (
            f'charset=utf-8,username="{self._user}",realm="{realm}",nonce="{nonce}",nc=00000001,'
            f'cnonce="{self._nonce}",digest-uri="{_TOKEN_DIGEST_URI}",maxbuf=65536,'
            f"response={response},qop={protection}"
        )

    def _choose(self, offered: str) -> str:
        names = {"auth-int": Protection.INTEGRITY, "auth": Protection.AUTHENTICATION}
        for name, protection in names.items():
            if protection in self._allowed and name in [part.strip() for part in offered.split(",")]:
                return name
        raise SecureConnectionError(
            f"SASL DIGEST-MD5: the server offers {offered}, the client accepts {self._allowed!r} without "
            "privacy, which would require broken ciphers. Log in with Kerberos, or let the server use "
            "TLS and hadoop.rpc.protection=authentication"
        )

    @staticmethod
    def _signature(key: bytes, number: int, data: bytes) -> bytes:
        numbered = struct.pack(">I", number)
        return hmac.new(key, numbered + data, hashlib.md5).digest()[:10] + b"\0\1" + numbered


def _md5(data: str | bytes) -> bytes:
    return hashlib.md5(data.encode("utf-8") if isinstance(data, str) else data).digest()


def _directives(challenge: bytes) -> dict[str, str]:
    """Read ``name="value",name=value``. If a name is repeated, the first value counts."""
    found: dict[str, str] = {}
    with contextlib.suppress(UnicodeDecodeError):
        for name, quoted, bare in re.findall(
            r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^,\s]*))', challenge.decode("utf-8")
        ):
            found.setdefault(name, re.sub(r"\\(.)", r"\1", quoted) or bare)
    return found


try:
    import gssapi
except ImportError:
    gssapi = None

RECEIVE_BYTES = 0xFFFFFF
"""The longest frame that the client accepts, as announced to the server: the maximum of the field."""


class Kerberos:
    """A login with the ticket of this process's user.

    Args:
        login: the server's principal.
        host: the host of the address.
        allowed: the protections that may be negotiated. The strongest that the server also offers is chosen.

    Raises:
        MissingExtraError: If the package ``gssapi`` is not installed.
        SecureConnectionError: If there is no ticket, or if the KDC does not know the server.
    """

    name = "GSSAPI"
    is_complete = False

    def __init__(self, login: KerberosLogin, host: str, allowed: Protection) -> None:
        if gssapi is None:
            raise MissingExtraError(
                "Kerberos requires the package gssapi: pip install 'hive-mutation-api[kerberos]' (it is "
                "built with a C compiler and the Kerberos headers, on Debian gcc and libkrb5-dev)"
            )
        self._principal = login.principal_of(host)
        self._allowed = allowed
        self._agreed = Protection.AUTHENTICATION
        self._frame_bytes = 0
        flags = gssapi.RequirementFlag
        self._context: Any = gssapi.SecurityContext(
            name=gssapi.Name(self._principal, gssapi.NameType.kerberos_principal),
            mech=gssapi.MechType.kerberos,
            flags=[flags.mutual_authentication, flags.integrity, flags.confidentiality],
            usage="initiate",
        )

    def respond(self, challenge: bytes) -> bytes:
        """Exchange tickets, then negotiate the protection."""
        try:
            if not self._context.complete:
                return self._context.step(challenge or None) or b""
            return self._agree(challenge) if challenge else b""
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error

    def wrap(self, data: bytes) -> list[bytes]:
        """Sign or encrypt data, in frames that the server accepts."""
        if self._agreed is Protection.AUTHENTICATION:
            return [data]
        size, is_private = self._frame_bytes, self._agreed is Protection.PRIVACY
        return [
            self._context.wrap(data[start : start + size], is_private).message
            for start in range(0, len(data), size)
        ]

    def unwrap(self, frame: bytes) -> bytes:
        """Verify a frame and return its content."""
        if self._agreed is Protection.AUTHENTICATION:
            return frame
        try:
            opened = self._context.unwrap(frame)
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error
        if self._agreed is Protection.PRIVACY and not opened.encrypted:
            raise SecureConnectionError(
                "SASL GSSAPI: privacy was negotiated, but a message arrived in clear text"
            )
        message: bytes = opened.message
        return message

    def _agree(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4:
            raise SecureConnectionError(f"SASL GSSAPI: expected an offer of 4 bytes, got {len(offer)}")
        common = [each for each in Protection if each & offer[0] and each in self._allowed]
        if not common:
            raise SecureConnectionError(
                f"SASL GSSAPI: the server offers {Protection(offer[0] & 7)!r}, "
                f"this client accepts {self._allowed!r} "
                "(hadoop.rpc.protection)"
            )
        agreed = max(common)
        max_bytes = int.from_bytes(offer[1:], "big")
        ours = 0
        if agreed is not Protection.AUTHENTICATION:
            ours = RECEIVE_BYTES
            self._frame_bytes = self._context.get_wrap_size_limit(max_bytes, agreed is Protection.PRIVACY)
        answer = bytes([agreed]) + ours.to_bytes(3, "big")
        sealed: bytes = self._context.wrap(answer, False).message
        self._agreed = agreed
        self.is_complete = True
        return sealed

    def _failure(self, error: Exception) -> SecureConnectionError:
        return SecureConnectionError(
            f"Kerberos login at {self._principal} failed: {error}; see klist and kinit"
        )
