"""A Kerberos key server of MIT's for the tests marked ``kerberos``.

They run with ``--kerberos`` only, for no package index has it ready made. On Debian:
``apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc`` and
``.venv/bin/python -m pip install gssapi``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["REALM", "KeyServer"]

REALM = "TEST"
START_TIMEOUT_SECONDS = 10.0
COMMAND_TIMEOUT_SECONDS = 60
KRB5_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
KDC_CONF = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
 }}
"""


class KeyServer:
    """A running key server, whose files lie in a folder: those of its clients, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def configuration(self) -> Path:
        """What ``KRB5_CONFIG`` names."""
        return self.folder / "krb5.conf"

    def keytab(self, *names: str) -> Path:
        """The keys of these principals (without realm), which are made if need be, in one file."""
        file = self.folder / f"{'+'.join(names).replace('/', '_')}.keytab"
        if not file.exists():
            for name in names:
                _run("kadmin.local", "-q", f"addprinc -randkey {name}@{REALM}")
                _run("kadmin.local", "-q", f"ktadd -k {file} {name}@{REALM}")
        return file

    def ticket(self, name: str, *options: str) -> Path:
        """A file with a new ticket of that principal; ``options`` are kinit's."""
        cache = self.folder / f"{name}.ticket"
        _run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(self.keytab(name)), *options, f"{name}@{REALM}")
        return cache


@pytest.fixture(scope="module")
def key_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyServer]:
    """A key server that this process and the programs that it starts find; nobody has a ticket."""
    folder = tmp_path_factory.mktemp("kdc")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for name, text in (("krb5.conf", KRB5_CONF), ("kdc.conf", KDC_CONF)):
        (folder / name).write_text(text.format(realm=REALM, port=port, folder=folder))
    keys = KeyServer(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")
        patch.setenv("KRB5_CONFIG", str(keys.configuration))
        patch.setenv("KRB5_KDC_PROFILE", str(folder / "kdc.conf"))
        patch.setenv("KRB5CCNAME", f"FILE:{folder / 'no_ticket'}")
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={keys.configuration}")
        _run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        server = subprocess.Popen(["krb5kdc", "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield keys
        finally:
            server.terminate()
            server.wait(START_TIMEOUT_SECONDS)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=COMMAND_TIMEOUT_SECONDS)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), 1).close()
        assert time.monotonic() < deadline, "the key server does not start"
