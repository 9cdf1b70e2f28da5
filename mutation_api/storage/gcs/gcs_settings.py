"""GcsSettings: Hadoop's properties for Google Cloud Storage.

Missing settings are found as Google's clients find them: ``GOOGLE_APPLICATION_CREDENTIALS``, the login of
``gcloud``, the service account of the machine.

Source: the configuration page of Google's Hadoop connector. Its older ``google.cloud.auth.*`` apply where
``fs.gs.auth.*`` is not set.
"""

from __future__ import annotations

import enum
import errno
from dataclasses import dataclass

from mutation_api.storage.hadoop_settings import HadoopSettings

__all__ = ["Auth", "GcsSettings"]

_ROOT_URL_DEFAULT = "https://storage.googleapis.com"
_ATTEMPTS_DEFAULT = 8
_OLDER = "google.cloud.auth."
_NEWER = "fs.gs.auth."
_REFUSED = {
    "fs.gs.encryption.key": "this client does not support customer-supplied encryption keys",
    "fs.gs.auth.impersonation.service.account": "this client does not support impersonation",
    "fs.gs.auth.service.account.keyfile": "this client reads a key from a JSON file only "
    "(fs.gs.auth.service.account.json.keyfile)",
    "fs.gs.auth.service.account.private.key": "this client reads a key from a file only "
    "(fs.gs.auth.service.account.json.keyfile)",
}


class Auth(enum.Enum):
    """The source of credentials, by the connector's names."""

    DEFAULT = "APPLICATION_DEFAULT"
    MACHINE = "COMPUTE_ENGINE"
    KEY_FILE = "SERVICE_ACCOUNT_JSON_KEYFILE"
    FEDERATION = "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE"
    NOBODY = "UNAUTHENTICATED"


_KEY_FILE = "service.account.json.keyfile"
_FEDERATION_FILE = "workload.identity.federation.credential.config.file"
_FILES = {Auth.KEY_FILE: _KEY_FILE, Auth.FEDERATION: _FEDERATION_FILE}


@dataclass(frozen=True)
class GcsSettings:
    """How a bucket is reached. ``credentials_file`` is a path if ``auth`` needs one."""

    auth: Auth
    credentials_file: str | None
    root_url: str
    project: str | None
    payer: str | None
    attempts: int

    @classmethod
    def of_bucket(cls, bucket: str, settings: HadoopSettings) -> GcsSettings:
        """The settings of a bucket.

        Raises:
            OSError: EINVAL, a setting is invalid or not supported by this client.
        """
        location = f"gs://{bucket}"
        for name, why in _REFUSED.items():
            if settings.get(name) is not None:
                raise OSError(errno.EINVAL, f"{name} is set, but {why}", location)
        auth = _auth(settings, location)
        project = settings.get("fs.gs.project.id")
        return cls(
            auth=auth,
            credentials_file=_credentials_file(settings, auth, location),
            root_url=(settings.get("fs.gs.storage.root.url") or _ROOT_URL_DEFAULT).rstrip("/"),
            project=project,
            payer=_payer(settings, bucket, location),
            attempts=max(1, settings.number("fs.gs.http.max.retry", _ATTEMPTS_DEFAULT - 1) + 1),
        )


def _auth(settings: HadoopSettings, location: str) -> Auth:
    text = settings.get(f"{_NEWER}type")
    if text is not None:
        known = {auth.value: auth for auth in Auth}
        if text.upper() not in known:
            raise OSError(
                errno.EINVAL, f"{_NEWER}type is {text!r}; this client knows {', '.join(known)}", location
            )
        return known[text.upper()]
    if _older_flag(settings, "null.enable", default=False):
        return Auth.NOBODY
    if _text(settings, _KEY_FILE) and _older_flag(settings, "service.account.enable", default=True):
        return Auth.KEY_FILE
    return Auth.DEFAULT


def _text(settings: HadoopSettings, name: str) -> str | None:
    return settings.get(f"{_NEWER}{name}") or settings.get(f"{_OLDER}{name}")


def _older_flag(settings: HadoopSettings, name: str, default: bool) -> bool:
    """A flag by either of its names; the newer name wins."""
    return settings.flag(f"{_NEWER}{name}", settings.flag(f"{_OLDER}{name}", default))


def _credentials_file(settings: HadoopSettings, auth: Auth, location: str) -> str | None:
    if auth not in _FILES:
        return None
    path = _text(settings, _FILES[auth])
    if path is None:
        raise OSError(
            errno.EINVAL, f"{_NEWER}type is {auth.value}, but {_NEWER}{_FILES[auth]} is missing", location
        )
    return path.removeprefix("file://")


def _payer(settings: HadoopSettings, bucket: str, location: str) -> str | None:
    """The project that pays for requests, if it is not the bucket's owner."""
    mode = (settings.get("fs.gs.requester.pays.mode") or "DISABLED").upper()
    buckets = (settings.get("fs.gs.requester.pays.buckets") or "").replace(" ", "").split(",")
    if mode not in ("DISABLED", "ENABLED", "CUSTOM"):
        raise OSError(
            errno.EINVAL,
            f"fs.gs.requester.pays.mode is {mode!r}; this client knows DISABLED, ENABLED and CUSTOM",
            location,
        )
    if mode == "DISABLED" or (mode == "CUSTOM" and bucket not in buckets):
        return None
    payer = settings.get("fs.gs.requester.pays.project.id") or settings.get("fs.gs.project.id")
    if payer is None:
        raise OSError(
            errno.EINVAL, "fs.gs.requester.pays.project.id is missing: name the project that pays", location
        )
    return payer
