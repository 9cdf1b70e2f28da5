"""TLS to a metastore: trusted certificates, and a socket that notices when the server has hung up."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

from thrift.transport.TSocket import TSocket

from metastore_client.errors import SecureConnectionError
from metastore_client.transport.security import TlsConfig
from metastore_client.transport.trust_store import read_certificates

__all__ = ["TlsSocket", "start_tls"]


def start_tls(handle: socket.socket, host: str, config: TlsConfig) -> ssl.SSLSocket:
    """Encrypt a connection and verify that it leads to the right server.

    A certificate in the trust store is trusted itself, with any issuer, as in Java.

    Args:
        handle: a connected socket; the result owns it afterwards.
        host: the name or IP address that the certificate must contain.
        config: the trusted certificates.

    Raises:
        InvalidConfigurationError: the trust store cannot be used.
        SecureConnectionError: the certificate is not accepted, or the other side does not speak TLS.
        OSError: the connection broke.
    """
    context = _context(config)
    try:
        return context.wrap_socket(handle, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SecureConnectionError(
            f"TLS: the certificate of {host} is not accepted: {error.verify_message}; "
            f"trusted is {config.trust_store or 'what this machine trusts'}"
        ) from error
    except ssl.SSLError as error:
        raise SecureConnectionError(
            f"TLS: no handshake with {host}: {error.reason or error}; does the server speak TLS?"
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
    """A Thrift socket whose ``isOpen`` works for TLS. Thrift's peeks into the socket, which TLS cannot."""

    handle: Any

    def isOpen(self) -> bool:  # noqa: N802 - Thrift's name
        """Whether the server has its end open; call it only between calls, when no bytes are in transit."""
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
