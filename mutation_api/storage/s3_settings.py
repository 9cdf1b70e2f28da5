"""S3Settings: Hadoop's ``fs.s3a.*`` properties for one bucket.

The AWS client finds missing settings (keys, profile, region, endpoint) as usual: in ``AWS_*``, in the
profiles' files, or through the role of the machine.

Source: Hadoop's documentation of S3A, "Configuring different S3 buckets" and "Authenticating".
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from mutation_api.storage.hadoop_settings import HadoopSettings

_PREFIX = "fs.s3a."
_PART_BYTES_DEFAULT = 16 * 2**20
_SMALLEST_PART_BYTES = 5 * 2**20
_CONNECTIONS_DEFAULT = 32
_ATTEMPTS_DEFAULT = 10
_STATIC = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_FOUND_BY_THE_CLIENT = (
    "EnvironmentVariableCredentialsProvider",
    "ProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
)
_ENCRYPTIONS = {"SSE-S3": "AES256", "AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}


@dataclass(frozen=True)
class S3Settings:
    """The settings of one bucket.

    A setting of None is left to the AWS client. The ``repr`` shows no secrets.
    """

    endpoint: str | None
    region: str | None
    path_style: bool
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)
    anonymous: bool
    requester_pays: bool
    encryption: str | None
    kms_key: str | None
    part_bytes: int
    max_connections: int
    attempts: int

    @property
    def finds_keys_itself(self) -> bool:
        """True if the AWS client finds the keys and may find new ones later."""
        return self.access_key is None and not self.anonymous

    @classmethod
    def of_bucket(cls, bucket: str, settings: HadoopSettings) -> S3Settings:
        """Return the settings of a bucket. ``fs.s3a.bucket.NAME.…`` takes precedence over ``fs.s3a.…``.

        Raises:
            OSError: If a setting is invalid or not supported by this client (EINVAL).
        """
        merged = _of_bucket(bucket, settings)
        providers = _provider_names(merged)
        _check_providers(bucket, providers)
        is_static = not providers or any(name in _STATIC for name in providers)
        encryption = merged.get("encryption.algorithm") or merged.get("server-side-encryption-algorithm")
        if encryption is not None and encryption.upper() not in _ENCRYPTIONS:
            raise OSError(
                errno.EINVAL,
                f"unsupported fs.s3a.encryption.algorithm {encryption!r}; "
                f"supported: {', '.join(_ENCRYPTIONS)}",
                f"s3a://{bucket}",
            )
        return cls(
            endpoint=_endpoint(merged),
            region=merged.get("endpoint.region"),
            path_style=merged.flag("path.style.access", default=False),
            access_key=merged.get("access.key") if is_static else None,
            secret_key=merged.get("secret.key") if is_static else None,
            session_token=merged.get("session.token") if is_static else None,
            anonymous=bool(providers) and all(name == _ANONYMOUS for name in providers),
            requester_pays=merged.flag("requester.pays.enabled", default=False),
            encryption=None if encryption is None else _ENCRYPTIONS[encryption.upper()],
            kms_key=merged.get("encryption.key") or merged.get("server-side-encryption.key"),
            part_bytes=max(_SMALLEST_PART_BYTES, merged.number("multipart.size", _PART_BYTES_DEFAULT)),
            max_connections=max(1, merged.number("connection.maximum", _CONNECTIONS_DEFAULT)),
            attempts=max(1, merged.number("attempts.maximum", _ATTEMPTS_DEFAULT)),
        )


def _of_bucket(bucket: str, settings: HadoopSettings) -> HadoopSettings:
    """Return the bucket's settings without their prefixes. An empty setting counts as missing."""
    merged: dict[str, str] = {}
    for prefix in (_PREFIX, f"{_PREFIX}bucket.{bucket}."):
        merged |= {
            name.removeprefix(prefix): text
            for name, text in settings.properties.items()
            if name.startswith(prefix) and text.strip()
        }
    return HadoopSettings(merged)


def _endpoint(merged: HadoopSettings) -> str | None:
    text = merged.get("endpoint")
    if text is None or text.rstrip("/").endswith("amazonaws.com"):
        return None  # the client finds them by region
    if "://" in text:
        return text
    scheme = "https" if merged.flag("connection.ssl.enabled", default=True) else "http"
    return f"{scheme}://{text}"


def _provider_names(merged: HadoopSettings) -> list[str]:
    text = merged.get("aws.credentials.provider") or ""
    return [name.strip().rpartition(".")[2].rpartition("$")[2] for name in text.split(",") if name.strip()]


def _check_providers(bucket: str, names: list[str]) -> None:
    """Raise an error unless one provider is supported. Hadoop tries them in turn, so one is enough."""
    known = {*_STATIC, _ANONYMOUS, *_FOUND_BY_THE_CLIENT}
    if names and not known & set(names):
        raise OSError(
            errno.EINVAL,
            f"unsupported fs.s3a.aws.credentials.provider {', '.join(names)}: "
            "provide keys, or a profile or role that the AWS client finds, and name one of "
            f"{', '.join(sorted(known))}",
            f"s3a://{bucket}",
        )
