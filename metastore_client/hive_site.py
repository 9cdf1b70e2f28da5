"""The configuration of a connection: :class:`MetastoreConfig`, read from ``hive-site.xml``, a dict or an
address. Pure except for reading the file.

Only the client's settings are read here. The server decides ``hive.txn.timeout`` and the like, so they are
requested from the server.
"""

from __future__ import annotations

import enum
import getpass
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from metastore_client.errors import InvalidConfigurationError
from metastore_client.transport.security import (
    ANY_PROTECTION,
    HttpConfig,
    Protection,
    SaslLogin,
    TlsConfig,
    flag,
    number,
    read_http,
    read_login,
    read_protections,
    read_tls,
    text_of,
)

URIS = "hive.metastore.uris"
URIS_3 = "metastore.thrift.uris"
URI_SELECTION = "hive.metastore.uri.selection"
SOCKET_TIMEOUT = "hive.metastore.client.socket.timeout"
SOCKET_TIMEOUT_SECONDS_DEFAULT = 600.0
CONNECT_RETRIES = "hive.metastore.connect.retries"
CONNECT_ROUNDS_DEFAULT = 3
CONNECT_RETRY_DELAY = "hive.metastore.client.connect.retry.delay"
CONNECT_RETRY_DELAY_SECONDS_DEFAULT = 1.0
FAILURE_RETRIES = "hive.metastore.failure.retries"
FAILURE_RETRIES_DEFAULT = 1
COMPACT_PROTOCOL = "hive.metastore.thrift.compact.protocol.enabled"
FRAMED_TRANSPORT = "hive.metastore.thrift.framed.transport.enabled"
EXECUTE_SET_UGI = "hive.metastore.execute.setugi"
CONNECT_TIMEOUT_SECONDS_DEFAULT = 20.0
"""The maximum wait for a connection, which is this client's own setting.

Hive waits as long for a connection as for an answer, so a dead node would cost ten minutes.
"""
PORT_DEFAULT = 9083

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_SECONDS_OF_UNIT = {
    **dict.fromkeys(("ns", "nanosecond"), 1e-9),
    **dict.fromkeys(("us", "microsecond"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millisecond"), 1e-3),
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3600.0),
    **dict.fromkeys(("d", "day"), 86400.0),
}
_REFERENCE = re.compile(r"\$\{([^{}$]+)\}")
_DEPTH_MAX = 20
"""Hadoop's limit on references to references (Configuration.MAX_SUBST)."""
VALUE_CHARACTERS_MAX = 100_000
"""The maximum length of a value with references replaced.

Without it, twenty steps that each double a value would make it a million times as long.
"""
_SHIPPED = "__spark_conf__/__hadoop_conf__"
_ADDRESS = re.compile(r"(?:thrift://)?(?P<host>\[[^\]]+\]|[^:/\s]+)(?::(?P<port>\d+))?/?")


class UriSelection(enum.Enum):
    """The order in which the client tries the addresses."""

    RANDOM = "RANDOM"
    SEQUENTIAL = "SEQUENTIAL"


class Address(NamedTuple):
    """The address of one metastore server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"thrift://{self.host}:{self.port}"


@dataclass(frozen=True)
class MetastoreConfig:
    """The settings with which a client reaches a metastore.

    Args:
        addresses: addresses of the servers, all of the same metastore.
        selection: RANDOM distributes the clients; SEQUENTIAL prefers the first address.
        socket_timeout_seconds: maximum wait for an answer. It must exceed the longest call (a commit of
            10,000 partitions may take minutes).
        connect_timeout_seconds: maximum wait for a connection to one address.
        connect_rounds: number of times to try the whole list before the server counts as unavailable, >= 1.
        connect_retry_delay_seconds: pause between two rounds.
        failure_retries: number of times to repeat a repeatable call after the connection broke.
        is_compact: True for the compact protocol, False for the binary one. A server speaks only one of them.
        is_framed: True for the framed transport, False for the buffered one.
        sets_user: True to send the user's name once per connection (``set_ugi``).
        user: user name on the server. With a login, the server takes the name from the login.
        tls: encryption settings. If None, the connection is not encrypted.
        http: HTTP settings; framing then does not apply. If None, plain TCP is used.
        login: authentication settings for plain TCP; framing then does not apply. If None, the client does
            not authenticate.
        protections: protections that the login may negotiate for later data. Under TLS, none is added.
        origin: where the addresses come from, for messages, such as ``read from FILE``. '' if unknown.
        site: all keys of the hive-site.xml, for settings that a server does not report.
    """

    addresses: tuple[Address, ...]
    selection: UriSelection = UriSelection.RANDOM
    socket_timeout_seconds: float = SOCKET_TIMEOUT_SECONDS_DEFAULT
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS_DEFAULT
    connect_rounds: int = CONNECT_ROUNDS_DEFAULT
    connect_retry_delay_seconds: float = CONNECT_RETRY_DELAY_SECONDS_DEFAULT
    failure_retries: int = FAILURE_RETRIES_DEFAULT
    is_compact: bool = False
    is_framed: bool = False
    sets_user: bool = True
    user: str = ""
    tls: TlsConfig | None = None
    http: HttpConfig | None = None
    login: SaslLogin | None = None
    protections: Protection = ANY_PROTECTION
    origin: str = field(default="", repr=False, compare=False)
    site: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.addresses:
            raise InvalidConfigurationError(f"no metastore address is given ({URIS} is empty)")
        if self.http is not None and self.login is not None:
            raise InvalidConfigurationError(
                "SASL login and HTTP cannot be combined: SASL works on plain TCP only, HTTP has headers and "
                "tokens"
            )
        if self.http is not None or self.login is not None:
            object.__setattr__(self, "sets_user", False)
            object.__setattr__(self, "is_framed", False)
        if not self.user:
            object.__setattr__(self, "user", current_user())

    @classmethod
    def from_uris(cls, text: str) -> MetastoreConfig:
        """Read ``thrift://host:port,thrift://host2:port``. The default port is 9083.

        Raises:
            InvalidConfigurationError: If a part is not an address.
        """
        return cls(addresses=_parse_addresses(text))

    @classmethod
    def from_mapping(cls, values: Mapping[str, str]) -> MetastoreConfig:
        """Read the keys of ``hive-site.xml``. Unknown keys are ignored.

        Raises:
            InvalidConfigurationError: If there is no address, or if a value is invalid.
        """
        uris = text_of(values, URIS) or values.get(URIS_3, "").strip()
        if not uris:
            raise InvalidConfigurationError(
                f"{URIS} is not set: pass the metastore's address, for example thrift://host:9083"
            )
        http = read_http(values)
        tls = read_tls(values)
        return cls(
            addresses=_parse_addresses(uris),
            selection=_selection(text_of(values, URI_SELECTION) or UriSelection.RANDOM.value),
            socket_timeout_seconds=_seconds(values, SOCKET_TIMEOUT, SOCKET_TIMEOUT_SECONDS_DEFAULT),
            connect_rounds=max(1, number(values, CONNECT_RETRIES, CONNECT_ROUNDS_DEFAULT)),
            connect_retry_delay_seconds=_seconds(
                values, CONNECT_RETRY_DELAY, CONNECT_RETRY_DELAY_SECONDS_DEFAULT
            ),
            failure_retries=number(values, FAILURE_RETRIES, FAILURE_RETRIES_DEFAULT),
            is_compact=flag(values, COMPACT_PROTOCOL, False),
            is_framed=flag(values, FRAMED_TRANSPORT, False),
            sets_user=flag(values, EXECUTE_SET_UGI, True),
            tls=tls,
            http=http,
            login=None if http else read_login(values),
            protections=Protection.AUTHENTICATION if tls else read_protections(values),
            site=dict(values),
        )

    @classmethod
    def load(
        cls, source: MetastoreConfig | str | Mapping[str, str] | Path | None, *, user: str | None = None
    ) -> MetastoreConfig:
        """Make a configuration from any of the accepted sources.

        Args:
            source: a configuration, a list of addresses (``thrift://…``), the keys of a hive-site.xml, or the
                path of such a file or of its directory. A string that names an existing directory or looks
                like a path is also a path. If None, the file in HIVE_CONF_DIR, otherwise in HADOOP_CONF_DIR.
            user: user name on the server. If None, the configured one, otherwise the user of this process.

        Raises:
            InvalidConfigurationError: If there is no source, or if it is invalid.
        """
        if isinstance(source, MetastoreConfig):
            config = source
        elif source is None:
            config = cls._from_file(_file_from_environment())
        elif isinstance(source, Path) or (isinstance(source, str) and _is_path(source)):
            config = cls._from_file(Path(source))
        elif isinstance(source, str):
            config = replace(cls.from_uris(source), origin="given, not read from a hive-site.xml")
        else:
            config = cls.from_mapping(source)
        return config if user is None else replace(config, user=user)

    @classmethod
    def _from_file(cls, path: Path) -> MetastoreConfig:
        return replace(cls.from_mapping(read_hive_site(path)), origin=f"read from {_file_of(path)}")


def read_hive_site(path: Path) -> dict[str, str]:
    """Read names and values of a ``hive-site.xml``, given as the file or as its directory.

    References such as ``${env:NAME}`` and ``${system:user.name}``, and those to other keys of the file, are
    replaced.

    Raises:
        InvalidConfigurationError: If the file is missing or is not such an XML file, or if references make a
            value too long.
    """
    file = _file_of(path)
    try:
        root = ElementTree.parse(file).getroot()
    except FileNotFoundError:
        raise InvalidConfigurationError(f"no such file: {file}") from None
    except (ElementTree.ParseError, OSError) as error:
        raise InvalidConfigurationError(f"cannot read {file} as XML: {error}") from error
    if root.tag != "configuration":
        raise InvalidConfigurationError(f"{file}: root element is <{root.tag}>, expected <configuration>")
    values = {}
    for entry in root.iter("property"):
        name = (entry.findtext("name") or "").strip()
        if name:
            values[name] = (entry.findtext("value") or "").strip()
    return {name: _replaced(name, values, file) for name in values}


def _file_of(path: Path) -> Path:
    return path / "hive-site.xml" if path.is_dir() else path


def parse_duration_seconds(text: str, *, default_unit: str = "s") -> float:
    """Read a Hive duration: ``300``, ``300s``, ``5 min``, ``100ms``, ``1d``.

    Raises:
        InvalidConfigurationError: If the string is not a duration.
    """
    found = _DURATION.fullmatch(text)
    unit = "" if found is None else (found.group(2).lower() or default_unit)
    seconds = _SECONDS_OF_UNIT.get(unit) or _SECONDS_OF_UNIT.get(unit.removesuffix("s"))
    duration = math.inf if found is None or seconds is None else float(found.group(1)) * seconds
    if not math.isfinite(duration):
        raise InvalidConfigurationError(f"not a duration: {text!r} (expected a number and ms, s, m, h or d)")
    return duration


def _parse_addresses(text: str) -> tuple[Address, ...]:
    addresses = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _ADDRESS.fullmatch(part)
        port = PORT_DEFAULT if found is None or found["port"] is None else int(found["port"])
        if found is None or not 0 < port < 65536:
            raise InvalidConfigurationError(
                f"not a metastore address: {part!r} (expected thrift://host:port)"
            )
        addresses.append(Address(found["host"].strip("[]"), port))
    if not addresses:
        raise InvalidConfigurationError("the list of metastore addresses is empty")
    return tuple(dict.fromkeys(addresses))


def _selection(text: str) -> UriSelection:
    try:
        return UriSelection(text.strip().upper())
    except ValueError:
        raise InvalidConfigurationError(
            f"{URI_SELECTION}: expected RANDOM or SEQUENTIAL, got {text!r}"
        ) from None


def _seconds(values: Mapping[str, str], key: str, default: float) -> float:
    text = text_of(values, key)
    if not text:
        return default
    try:
        return parse_duration_seconds(text)
    except InvalidConfigurationError as error:
        raise InvalidConfigurationError(f"{key}: {error}") from None


def _replaced(name: str, values: Mapping[str, str], file: Path) -> str:
    """Return the value of a key with ``${…}`` replaced.

    Unknown references stay, as in Hadoop's Configuration. References to references are followed as deeply as
    Hadoop follows them. A cycle of references then stays as it is.

    Raises:
        InvalidConfigurationError: If the value has more than VALUE_CHARACTERS_MAX characters.
    """
    text = values[name]
    for _ in range(_DEPTH_MAX):
        parts: list[str] = []
        length = position = 0
        for found in _REFERENCE.finditer(text):
            parts += [text[position : found.start()], _referred(found, values)]
            position = found.end()
            length += len(parts[-2]) + len(parts[-1])
            # Checked before anything is joined: each reference may add a value that is full of references.
            if length > VALUE_CHARACTERS_MAX:
                raise InvalidConfigurationError(
                    f"{file}: the value of {name} has more than {VALUE_CHARACTERS_MAX:,} characters when its "
                    "references ${…} are replaced, since they refer to values with references. Write the "
                    "value out, or remove the references"
                )
        replaced = "".join([*parts, text[position:]])
        if replaced == text:
            break
        text = replaced
    return text


def _referred(found: re.Match[str], values: Mapping[str, str]) -> str:
    """Return the value of a reference, or the reference itself if it is not known."""
    name = found.group(1)
    if name.startswith("env:"):
        return os.environ.get(name.removeprefix("env:"), found.group())
    if name in ("user.name", "system:user.name"):
        return current_user()
    return values.get(name, found.group())


def shipped_by_spark() -> Path | None:
    """Return the directory of Hadoop's files that Spark ships to a driver in a YARN container.

    Return None if this process is not such a driver. The files are those of the ``HADOOP_CONF_DIR`` from
    which the job was submitted.

    Source: org.apache.spark.deploy.yarn.Client (``__spark_conf__``); YARN sets CONTAINER_ID.
    """
    folder = Path(_SHIPPED)
    return folder if "CONTAINER_ID" in os.environ and folder.is_dir() else None


def _file_from_environment() -> Path:
    looked_at = []
    named = [os.environ.get(variable) for variable in ("HIVE_CONF_DIR", "HADOOP_CONF_DIR")]
    for folder in (named[0], shipped_by_spark(), named[1]):
        if folder:
            file = Path(folder) / "hive-site.xml"
            if file.is_file():
                return file
            looked_at.append(str(file))
    raise InvalidConfigurationError(
        "no metastore address was given, and there is no hive-site.xml in HIVE_CONF_DIR or HADOOP_CONF_DIR "
        f"(searched: {', '.join(looked_at) or 'neither is set'})"
    )


def _is_path(text: str) -> bool:
    return "://" not in text and (text.endswith(".xml") or os.sep in text or Path(text).is_dir())


def current_user() -> str:
    """Return the user of this process. HADOOP_USER_NAME takes precedence, as in Hadoop without Kerberos."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user id that has no name
        return f"uid-{os.getuid()}"
