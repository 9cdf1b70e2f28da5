"""The client of Azure's store: its credentials, and the number and duration of its attempts."""

from __future__ import annotations

from typing import Any

import requests
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import (
    ClientSecretCredential,
    DefaultAzureCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from azure.storage.blob import ContainerClient, ExponentialRetry
from requests.adapters import HTTPAdapter

from mutation_api.storage.azure.azure_settings import Auth, AzureSettings

__all__ = ["connected"]

_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_BACKOFF_START, _BACKOFF_BASE, _BACKOFF_JITTER = -1.5, 1.8, 0.2
"""The client waits start + base ** n seconds before the n-th repetition: 0.3, 1.7, 4.3, 9 …"""


def connected(settings: AzureSettings, threads: int) -> ContainerClient:
    """A client for this many threads; no request is made yet."""
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=threads))
    return ContainerClient(
        settings.endpoint,
        settings.container,
        credential=_credential(settings),
        transport=RequestsTransport(session=session),
        connection_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retry_policy=ExponentialRetry(
            initial_backoff=_BACKOFF_START,
            increment_base=_BACKOFF_BASE,
            random_jitter_range=_BACKOFF_JITTER,
            retry_total=settings.attempts - 1,
        ),
    )


def _credential(settings: AzureSettings) -> Any:
    match settings.auth:
        case Auth.KEY:
            return {"account_name": settings.account, "account_key": settings.secret}
        case Auth.SAS:
            return settings.secret
        case Auth.CLIENT:
            return ClientSecretCredential(
                settings.tenant, settings.client_id, settings.secret, authority=settings.authority
            )
        case Auth.MACHINE:
            return ManagedIdentityCredential(client_id=settings.client_id)
        case Auth.WORKLOAD:
            return WorkloadIdentityCredential(
                tenant_id=settings.tenant,
                client_id=settings.client_id,
                token_file_path=settings.token_file,
            )
        case Auth.DEFAULT:
            return DefaultAzureCredential()
