"""Hadoop's ``fs.azure.*`` properties for one container of Azure, and the client that they configure.

Missing settings are found as Azure's clients find them: in ``AZURE_*``, through the identity of the workload
or of the machine, or in the login of ``az``.

Source: Hadoop's documentation of ABFS, "Authentication". A property of an account
    (``fs.azure.account.key.ACCOUNT.dfs.core.windows.net``, or with only the account's name) takes precedence
    over the general one. A property of a container (``….CONTAINER.ACCOUNT.dfs.core.windows.net``) takes
    precedence over both. ``fs.azure.blob.endpoint`` is this library's own key: the address of the account's
    blobs if it is not the usual one (an emulator, a private endpoint).
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass, field
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

from mutation_api.storage.hadoop_settings import HadoopSettings

_ATTEMPTS_DEFAULT = 8
_BLOCK_BYTES_DEFAULT = 16 * 2**20
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 16 * 2**10, 100 * 2**20
_TYPE = "fs.azure.account.auth.type"
_KEY = "fs.azure.account.key"
_TOKEN = "fs.azure.sas.fixed.token"
_PROVIDER = "fs.azure.account.oauth.provider.type"
_OAUTH = "fs.azure.account.oauth2."


class Auth(enum.Enum):
    """The method with which this client authenticates."""

    DEFAULT = "found by the client"
    KEY = "SharedKey"
    SAS = "SAS"
    CLIENT = "ClientCredsTokenProvider"
    MACHINE = "MsiTokenProvider"
    WORKLOAD = "WorkloadIdentityTokenProvider"


_OAUTH_KINDS = {auth.value: auth for auth in (Auth.CLIENT, Auth.MACHINE, Auth.WORKLOAD)}


@dataclass(frozen=True)
class AzureSettings:
    """The settings of one container. The ``repr`` shows no secrets.

    ``secret`` is the account's key, a SAS token or a client's secret, depending on ``auth``.
    """

    container: str
    account: str
    endpoint: str
    auth: Auth
    secret: str | None = field(repr=False)
    client_id: str | None
    tenant: str | None
    authority: str | None
    token_file: str | None
    block_bytes: int
    attempts: int

    @classmethod
    def of_authority(cls, authority: str, settings: HadoopSettings) -> AzureSettings:
        """Return the settings of ``container@account.dfs.core.windows.net``.

        Raises:
            OSError: If the authority has no container or account, or if a setting is invalid or not supported
                (EINVAL).
        """
        location = f"abfss://{authority}"
        container, at, host = authority.partition("@")
        account, dot, _ = host.partition(".")
        if not (container and at and account and dot):
            raise OSError(
                errno.EINVAL,
                "the location has no container or account; "
                "expected abfss://container@account.dfs.core.windows.net/path",
                location,
            )
        known = _OfAccount(settings, container, account, host, location)
        auth = _auth(known)
        authority_url, tenant = _login(known) if auth is Auth.CLIENT else (None, None)
        size = settings.number("fs.azure.write.request.size", _BLOCK_BYTES_DEFAULT)
        return cls(
            container=container,
            account=account,
            endpoint=known.get("fs.azure.blob.endpoint") or f"https://{host.replace('.dfs.', '.blob.', 1)}",
            auth=auth,
            secret=_secret(known, auth),
            client_id=_client_id(known, auth),
            tenant=tenant or known.get(f"{_OAUTH}msi.tenant"),
            authority=authority_url,
            token_file=known.get(f"{_OAUTH}token.file"),
            block_bytes=min(max(size, _LEAST_BLOCK_BYTES), _MOST_BLOCK_BYTES),
            attempts=settings.number("fs.azure.io.retry.max.retries", _ATTEMPTS_DEFAULT - 1) + 1,
        )


@dataclass(frozen=True)
class _OfAccount:
    settings: HadoopSettings = field(repr=False)
    container: str
    account: str
    host: str
    location: str

    def get(self, name: str) -> str | None:
        owners = (f"{self.container}.{self.host}", self.host, self.account)
        names = (*(f"{name}.{owner}" for owner in owners), name)
        return next((text for each in names if (text := self.settings.get(each)) is not None), None)

    def needed(self, name: str, why: str) -> str:
        text = self.get(name)
        if text is None:
            raise OSError(errno.EINVAL, f"{name}.{self.host} is missing; {why} requires it", self.location)
        return text


def _auth(known: _OfAccount) -> Auth:
    kind = known.get(_TYPE)
    if kind is None:
        if known.get(_KEY) is not None:
            return Auth.KEY
        return Auth.SAS if known.get(_TOKEN) is not None else Auth.DEFAULT
    if kind.lower() in ("sharedkey", "sas"):
        return Auth.KEY if kind.lower() == "sharedkey" else Auth.SAS
    if kind.lower() != "oauth":
        raise OSError(
            errno.EINVAL,
            f"unsupported {_TYPE} {kind!r}; supported: SharedKey, SAS and OAuth",
            known.location,
        )
    provider = known.needed(_PROVIDER, f"{_TYPE}=OAuth").rpartition(".")[2]
    if provider not in _OAUTH_KINDS:
        raise OSError(
            errno.EINVAL,
            f"unsupported {_PROVIDER} {provider!r}; supported: {', '.join(_OAUTH_KINDS)}",
            known.location,
        )
    return _OAUTH_KINDS[provider]


def _secret(known: _OfAccount, auth: Auth) -> str | None:
    name = {Auth.KEY: _KEY, Auth.SAS: _TOKEN, Auth.CLIENT: f"{_OAUTH}client.secret"}.get(auth)
    return None if name is None else known.needed(name, auth.value)


def _client_id(known: _OfAccount, auth: Auth) -> str | None:
    name = f"{_OAUTH}client.id"
    return known.needed(name, auth.value) if auth is Auth.CLIENT else known.get(name)


def _login(known: _OfAccount) -> tuple[str, str]:
    """Return a client's login address and tenant.

    The setting has the form ``https://login.microsoftonline.com/TENANT/oauth2/token``.
    """
    name = f"{_OAUTH}client.endpoint"
    text = known.needed(name, Auth.CLIENT.value)
    scheme, separator, rest = text.partition("://")
    host, _, path = rest.partition("/")
    tenant = path.partition("/")[0]
    if not (separator and host and tenant):
        raise OSError(
            errno.EINVAL, f"{name}: expected https://HOST/TENANT/oauth2/token, got {text!r}", known.location
        )
    return f"{scheme}://{host}", tenant


_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_BACKOFF_START, _BACKOFF_BASE, _BACKOFF_JITTER = -1.5, 1.8, 0.2
"""Before the n-th repetition, the client waits start + base ** n seconds: 0.3, 1.7, 4.3, 9 …"""


def connected(settings: AzureSettings, threads: int) -> ContainerClient:
    """Return a client for this many threads, without making a request."""
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
