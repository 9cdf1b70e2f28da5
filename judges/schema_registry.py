"""A real schema registry: where tests register the schemas of messages in Avro.

Apicurio Registry, which has the interface of Confluent's. It comes as an archive from Maven Central and keeps
all in memory.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from judges.errors import JudgeError
from judges.jars import Jar, cache_directory, fetch
from judges.process import SMALL_JVM, START_TIMEOUT_SECONDS, Judge, free_port, log_tail, watched
from metastore_client.java import find_java

REGISTRY = Jar(
    "io.apicurio",
    "apicurio-registry-app",
    "3.0.9",
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    classifier="all",
    kind="tar.gz",
)

ANSWER_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1
STOP_TIMEOUT_SECONDS = 10.0

_MAIN = f"apicurio-registry-app-{REGISTRY.version}-runner.jar"
_OPTIONS = {
    "quarkus.http.host": "127.0.0.1",
    "quarkus.http.access-log.enabled": "false",
    "quarkus.log.level": "WARN",
}
_PATH = "/apis/ccompat/v7"


class SchemaRegistry(Judge):
    """One server on a free port of this machine."""

    def __init__(
        self, work_directory: Path, *, options: Mapping[str, object] | None = None, ca: Path | None = None
    ) -> None:
        """Start the server.

        Args:
            work_directory: folder for its log.
            options: further settings of the server; with ``quarkus.http.ssl-port`` it speaks TLS.
            ca: authority of its certificate, if it speaks TLS.

        Raises:
            JudgeError: it is not available here, or does not start; the message shows the end of its log.
        """
        work_directory.mkdir(parents=True, exist_ok=True)
        self.log_path = work_directory.resolve() / "registry.log"
        self.port = free_port()
        self._ca = ca
        self._options = dict(options or {})
        tls_port = self._options.get("quarkus.http.ssl-port")
        at = f"http://127.0.0.1:{self.port}" if tls_port is None else f"https://localhost:{tls_port}"
        self.url = at + _PATH
        self._process = self._start()
        with self._stopped_on_failure():
            self._wait_until_up()

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"Apicurio Registry {REGISTRY.version}"

    @staticmethod
    def free_tls_port() -> int:
        """A port for TLS among the options."""
        return free_port()

    def register(
        self,
        subject: str,
        schema: str,
        *,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, object]] = (),
    ) -> int:
        """Register a schema, as a converter does; returns its number."""
        body = {"schema": schema, "schemaType": kind, "references": list(references)}
        answer = json.loads(self._answer(f"/subjects/{subject}/versions", json.dumps(body).encode()))
        return int(answer["id"])

    def close(self) -> None:
        """Kill the server."""
        if self._process.poll() is None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(STOP_TIMEOUT_SECONDS)

    def _answer(self, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self.url + path, body, headers)
        trusted = None if self._ca is None else ssl.create_default_context(cafile=str(self._ca))
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS, context=trusted) as answer:
            content: bytes = answer.read()
        return content

    def _start(self) -> subprocess.Popen[bytes]:
        settings = {**_OPTIONS, "quarkus.http.port": self.port, **self._options}
        command = [str(find_java()), *SMALL_JVM, *(f"-D{name}={each}" for name, each in settings.items())]
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                watched("registry", [*command, "-jar", str(_unpacked() / _MAIN)]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.log_path.parent,
                start_new_session=True,
                env={name: each for name, each in os.environ.items() if not name.startswith("QUARKUS_")},
            )

    def _wait_until_up(self) -> None:
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                self._answer("/subjects")
            except OSError as error:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise JudgeError(
                        f"the schema registry does not answer: {error}\n{log_tail(self.log_path)}"
                    ) from error
            else:
                return
            time.sleep(POLL_SECONDS)


def _unpacked() -> Path:
    """The folder of the server's files; unpacked once."""
    home = cache_directory() / "registry" / REGISTRY.version
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="unpack-") as work:
            target = Path(work) / "home"
            with tarfile.open(fetch(REGISTRY)) as files:
                files.extractall(target, filter="data")
            try:
                target.rename(home)
            except OSError:
                if not home.exists():  # another process was faster
                    raise
    return home
