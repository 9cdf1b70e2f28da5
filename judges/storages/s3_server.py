"""An S3 server (moto) for tests, which can also find keys expired."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import boto3

from judges.storages.store_server import StoreServer

KEY, SECRET = "tester", "not-so-secret"
BUCKET = "tables"
"""A bucket that exists from the start."""


class S3Server(StoreServer):
    """One running server."""

    kind = "s3"
    program = ("judges.storages.s3_program",)

    @property
    def description(self) -> str:
        """Name and version."""
        return f"S3 server (moto {importlib.metadata.version('moto')})"

    @property
    def root(self) -> str:
        """The bucket."""
        return f"s3a://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Hadoop's properties for it."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.access.key": KEY,
            "fs.s3a.secret.key": SECRET,
        }

    def client(self) -> Any:
        """A separate client, to inspect the store without the library."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def make_bucket(self) -> None:
        """Create the bucket."""
        self.client().create_bucket(Bucket=BUCKET)

    def expire(self, requests_left: Mapping[str, int] | None = None) -> None:
        """From now on each of these access keys is good for this many requests, and expired then; any other
        is always good.
        """
        self._ask("expire", requests_left=dict(requests_left or {}))
