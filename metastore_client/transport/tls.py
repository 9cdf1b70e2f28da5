"""TLS connections to a metastore, and the certificates that they trust.

The first bytes of a trust store show its format: PEM, Java's JKS, or PKCS #12. The socket detects that the
server has hung up.

Source: the JKS format as sun.security.provider.JavaKeyStore writes it: entries, then a SHA-1 over the
    password, a fixed phrase and all preceding bytes. The package ``cryptography`` reads PKCS #12.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

from thrift.transport.TSocket import TSocket

from metastore_client.errors import InvalidConfigurationError, MissingExtraError, SecureConnectionError
from metastore_client.transport.security import TlsConfig

try:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12
except ImportError:
    Encoding = pkcs12 = None  # type: ignore[assignment,misc]

_PEM = re.compile(
    r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL
)
_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JKS_PHRASE = b"Mighty Aphrodite"
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_DER_SEQUENCE = b"\x30"
_SHA1_BYTES = 20


def read_certificates(path: Path, password: str | None = None) -> list[bytes]:
    """Read the trusted certificates (DER) of a file. There must be at least one.

    Private keys in the file are skipped together with their own certificates.

    Args:
        path: a file in the format PEM, JKS or PKCS #12.
        password: password of a Java key store. A JKS can be read without it, but then changes in the file are
            not detected.

    Raises:
        InvalidConfigurationError: If the file cannot be read, the password is wrong, or the file has no
            trusted certificate.
        MissingExtraError: If the file is PKCS #12 and ``cryptography`` is not installed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidConfigurationError(f"cannot read the trust store: {error}") from error
    if content.startswith(_JKS_MAGIC):
        found = _read_jks(path, content, password)
    elif content.startswith(_DER_SEQUENCE):
        found = _read_pkcs12(path, content, password)
    else:
        text = content.decode("latin-1")
        found = [ssl.PEM_cert_to_DER_cert(part.replace("TRUSTED ", "")) for part in _PEM.findall(text)]
    if not found:
        raise InvalidConfigurationError(
            f"trust store {path}: found no trusted certificate (expected PEM, JKS or PKCS #12)"
        )
    return found


def _read_jks(path: Path, content: bytes, password: str | None) -> list[bytes]:
    body, seal = content[:-_SHA1_BYTES], content[-_SHA1_BYTES:]
    if password is not None:
        digest = hashlib.sha1(password.encode("utf-16-be") + _JKS_PHRASE + body, usedforsecurity=False)
        if digest.digest() != seal:
            raise InvalidConfigurationError(
                f"trust store {path}: the password is wrong, or the file was tampered with"
            )
    try:
        return _jks_certificates(io.BytesIO(body))
    except (struct.error, ValueError) as error:
        raise InvalidConfigurationError(f"trust store {path} is damaged: {error}") from None


def _jks_certificates(file: io.BytesIO) -> list[bytes]:
    _, version, count = _unpack(file, ">4sII")
    if version not in (1, 2):
        raise ValueError(f"unsupported JKS version {version}")
    trusted = []
    for _ in range(count):
        (tag,) = _unpack(file, ">I")
        _jks_text(file)  # the alias
        file.seek(8, io.SEEK_CUR)  # the time of creation
        if tag == _TRUSTED_CERTIFICATE:
            trusted.append(_jks_certificate(file, version))
        elif tag == _PRIVATE_KEY:
            _jks_bytes(file)
            (chain_length,) = _unpack(file, ">I")
            for _ in range(chain_length):
                _jks_certificate(file, version)
        else:
            raise ValueError(f"unsupported JKS entry type {tag}")
    return trusted


def _jks_certificate(file: io.BytesIO, version: int) -> bytes:
    if version > 1:
        _jks_text(file)  # the kind, always X.509
    return _jks_bytes(file)


def _jks_text(file: io.BytesIO) -> None:
    (length,) = _unpack(file, ">H")
    file.seek(length, io.SEEK_CUR)


def _jks_bytes(file: io.BytesIO) -> bytes:
    (length,) = _unpack(file, ">I")
    found = file.read(length)
    if len(found) < length:
        raise ValueError("the file is truncated")
    return found


def _unpack(file: io.BytesIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, file.read(struct.calcsize(form)))


def _read_pkcs12(path: Path, content: bytes, password: str | None) -> list[bytes]:
    if pkcs12 is None:
        raise MissingExtraError(
            f"trust store {path} is PKCS #12, which requires the package cryptography: "
            "pip install 'hive-mutation-api[pkcs12]', or export it as PEM: "
            "keytool -exportcert -rfc -alias NAME -keystore FILE"
        )
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.encode("utf-8"))
    except ValueError as error:
        raise InvalidConfigurationError(
            f"trust store {path}: the password is wrong, or the file is not PKCS #12: {error}"
        ) from error
    return [entry.certificate.public_bytes(Encoding.DER) for entry in store.additional_certs]


def start_tls(handle: socket.socket, host: str, config: TlsConfig) -> ssl.SSLSocket:
    """Encrypt a connection and verify that it leads to the right server.

    As in Java, a certificate in the trust store is itself trusted, regardless of its issuer.

    Args:
        handle: a connected socket. Afterwards the result owns it.
        host: the name or IP address that the certificate must contain.
        config: the trusted certificates.

    Raises:
        InvalidConfigurationError: If the trust store cannot be used.
        SecureConnectionError: If the certificate is not accepted, or if the server does not speak TLS.
        OSError: If the connection broke.
    """
    context = _context(config)
    try:
        return context.wrap_socket(handle, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SecureConnectionError(
            f"TLS: the certificate of {host} is not accepted: {error.verify_message}; "
            f"trusted certificates: {config.trust_store or 'those of this machine'}"
        ) from error
    except ssl.SSLError as error:
        raise SecureConnectionError(
            f"TLS: handshake with {host} failed: {error.reason or error}; does the server speak TLS?"
        ) from error


def _context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.verifies_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.trust_store is None:
        context.load_default_certs()
    else:
        certificates = read_certificates(config.trust_store, config.trust_store_password)
        context.load_verify_locations(cadata=b"".join(certificates))
    return context


class TlsSocket(TSocket):  # type: ignore[misc]
    """A Thrift socket whose ``isOpen`` works for TLS.

    Thrift's own ``isOpen`` peeks into the socket, which TLS does not allow.
    """

    handle: Any

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Return True if the server has not closed its end.

        Use this only between calls, when no data is in transit.
        """
        if self.handle is None:
            return False
        timeout = self.handle.gettimeout()
        self.handle.settimeout(0)
        try:
            self.handle.recv(1)
        except (ssl.SSLWantReadError, BlockingIOError):
            return True
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                self.handle.settimeout(timeout)
        self.close()
        return False
