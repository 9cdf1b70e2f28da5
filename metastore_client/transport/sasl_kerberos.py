"""The SASL mechanism GSSAPI: Kerberos by the machine's own library, through the package ``gssapi``.

Source: RFC 4752; the names as HadoopThriftAuthBridge makes them.
"""

from __future__ import annotations

from typing import Any

from metastore_client.errors import MissingExtraError, SecureConnectionError
from metastore_client.transport.security import KerberosLogin, Protection

try:
    import gssapi
except ImportError:
    gssapi = None

__all__ = ["Kerberos"]

RECEIVE_BYTES = 0xFFFFFF
"""The longest frame that we accept, as announced to the server: the maximum of the field."""


class Kerberos:
    """A login with the ticket of this process's user.

    Args:
        login: the server's principal.
        host: the host of the address.
        allowed: the protections that may be negotiated; the strongest that the server also offers is chosen.

    Raises:
        MissingExtraError: the package ``gssapi`` is not installed.
        SecureConnectionError: there is no ticket, or the KDC does not know the server.
    """

    name = "GSSAPI"
    is_complete = False

    def __init__(self, login: KerberosLogin, host: str, allowed: Protection) -> None:
        if gssapi is None:
            raise MissingExtraError(
                "Kerberos needs the package gssapi: pip install 'hive-mutation-api[kerberos]' (it is built "
                "with a C compiler and the Kerberos headers, on Debian gcc and libkrb5-dev)"
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
        """Sign or encrypt, in frames that the server accepts."""
        if self._agreed is Protection.AUTHENTICATION:
            return [data]
        size, is_private = self._frame_bytes, self._agreed is Protection.PRIVACY
        return [
            self._context.wrap(data[start : start + size], is_private).message
            for start in range(0, len(data), size)
        ]

    def unwrap(self, frame: bytes) -> bytes:
        """Check and open a frame."""
        if self._agreed is Protection.AUTHENTICATION:
            return frame
        try:
            opened = self._context.unwrap(frame)
        except gssapi.exceptions.GSSError as error:
            raise self._failure(error) from error
        if self._agreed is Protection.PRIVACY and not opened.encrypted:
            raise SecureConnectionError(
                "SASL GSSAPI: privacy was agreed on, but a message came in clear text"
            )
        message: bytes = opened.message
        return message

    def _agree(self, challenge: bytes) -> bytes:
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4:
            raise SecureConnectionError(f"SASL GSSAPI: expected 4 bytes of offer, found {len(offer)}")
        common = [each for each in Protection if each & offer[0] and each in self._allowed]
        if not common:
            raise SecureConnectionError(
                f"SASL GSSAPI: the server offers {Protection(offer[0] & 7)!r}, we accept {self._allowed!r} "
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
        return SecureConnectionError(f"Kerberos: no login at {self._principal}: {error}; see klist and kinit")
