"""The client of Google's store: its credentials, and the number and duration of its attempts."""

from __future__ import annotations

from typing import Any

import google.auth
from google.auth import compute_engine
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.retry import DEFAULT_RETRY
from requests.adapters import HTTPAdapter

from mutation_api.storage.gcs.gcs_settings import Auth, GcsSettings

__all__ = ["connected", "patience"]

_TIMEOUTS = (10, 60)
"""Seconds to connect, and to read."""
_RETRY_SECONDS = 120.0
_RETRY = DEFAULT_RETRY.with_delay(initial=0.2, maximum=20.0, multiplier=2.0).with_timeout(_RETRY_SECONDS)
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)


def patience() -> dict[str, Any]:
    """Arguments of every request: repeat it with back-off for a bounded time."""
    return {"retry": _RETRY, "timeout": _TIMEOUTS}


def connected(settings: GcsSettings, threads: int) -> storage.Client:
    """A client for this many threads; no request is made yet."""
    client = storage.Client(
        project=settings.project or "none",  # needed only to create buckets
        credentials=_credentials(settings),
        client_options={"api_endpoint": settings.root_url},
    )
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, HTTPAdapter(pool_maxsize=threads))
    return client


def _credentials(settings: GcsSettings) -> Any:
    match settings.auth:
        case Auth.NOBODY:
            return AnonymousCredentials()
        case Auth.MACHINE:
            return compute_engine.Credentials(scopes=_SCOPES)
        case Auth.KEY_FILE | Auth.FEDERATION:
            return google.auth.load_credentials_from_file(settings.credentials_file, scopes=_SCOPES)[0]
        case Auth.DEFAULT:
            return google.auth.default(scopes=_SCOPES)[0]
