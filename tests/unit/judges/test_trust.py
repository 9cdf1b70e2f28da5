"""The key store that Python writes is one that Java reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from judges.trust import trusted_certificates, write_trust_store
from metastore_client.java import find_java

pytestmark = pytest.mark.slow


def test_java_reads_the_trust_store(tmp_path: Path) -> None:
    """Java's own keytool finds every certificate in it and accepts the seal."""
    certificates = trusted_certificates()
    assert certificates
    store = tmp_path / "trusted.jks"
    options = write_trust_store(store, certificates)
    settings = _run(find_java(), "-XshowSettings:properties", "-version")
    keytool = Path(settings.partition("java.home = ")[2].splitlines()[0]) / "bin" / "keytool"
    password = options[-1].rpartition("=")[2]
    said = _run(keytool, "-list", "-keystore", str(store), "-storetype", "JKS", "-storepass", password)
    assert f"contains {len(certificates)} entries" in said


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr
