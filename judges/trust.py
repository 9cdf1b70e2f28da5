"""Lets Java trust the certificate authorities that Python trusts.

A Java that was installed as a package has its own list, without the authority of a company's proxy.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

_PASSWORD = "changeit"
_MAGIC = 0xFEEDFEED
_VERSION = 2
_CERTIFICATE_ENTRY = 2


def trusted_certificates() -> list[bytes]:
    """Collect the certificates (DER) of the authorities that Python trusts, from its file and its folder."""
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    for path in sorted(Path(folder).glob("*.crt")) if folder else ():
        context.load_verify_locations(path)
    return context.get_ca_certs(binary_form=True)


def write_trust_store(path: Path, certificates: list[bytes]) -> list[str]:
    """Write certificates (DER) as a Java key store and return the options that make a JVM use it.

    Source: the JKS format as sun.security.provider.JavaKeyStore writes it: entries of (tag, alias, time,
    type, certificate), then a SHA-1 over password, a fixed phrase and the entries.
    """
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _CERTIFICATE_ENTRY) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    seal = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    path.write_bytes(body + seal.digest())
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def _text(text: str) -> bytes:
    encoded = text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
