"""The signature of a report."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.upkeep.erasure.report import hashed, is_erasure_signed_by, signed

REPORT = {"state": "erased", "tables": [{"table": "ä.t", "files": []}], "b": 1}


def test_a_signature_by_a_secret() -> None:
    """It survives a file of JSON with another order and blanks, and no change."""
    secret = b"0123456789abcdef"
    report = {**REPORT, "signature": signed(REPORT, secret)}
    read = json.loads(json.dumps(dict(reversed(report.items())), indent=3))
    assert is_erasure_signed_by(read, secret)
    assert not is_erasure_signed_by(read, secret[::-1])
    assert not is_erasure_signed_by({**read, "state": "unfinished"}, secret)
    assert not is_erasure_signed_by(REPORT, secret)
    assert not is_erasure_signed_by({**read, "signature": {"algorithm": "HMAC-SHA256", "value": "x"}}, secret)


def test_a_signature_by_ed25519(tmp_path: Path) -> None:
    """Made by the private key, and checked by the public one."""
    pytest.importorskip("cryptography")
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    report = {**REPORT, "signature": signed(REPORT, private.read_bytes())}
    assert report["signature"]["algorithm"] == "Ed25519"
    assert is_erasure_signed_by(report, public.read_bytes())
    assert not is_erasure_signed_by({**report, "b": 2}, public.read_bytes())
    assert not is_erasure_signed_by({**REPORT, "signature": signed(REPORT, b"x" * 16)}, public.read_bytes())


@pytest.mark.parametrize("key", [b"short", b"-----BEGIN NOTHING-----", b""])
def test_keys_that_sign_nothing(key: bytes) -> None:
    """They are refused before anything is erased."""
    with pytest.raises(ConfigurationError, match="signature_key"):
        signed(REPORT, key)


def test_a_hash_depends_on_the_salt() -> None:
    """Anyone with both can check a key."""
    assert hashed("7", b"salt") != hashed("7", b"other") != hashed("8", b"other")
    assert len(hashed("7", b"salt")) == 64
