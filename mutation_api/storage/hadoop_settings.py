"""Settings, tickets and tokens of Hadoop, and clients that a process shares.

HadoopSettings: the storage settings of Hadoop's configuration, so that users need not repeat them.

They are read from ``core-site.xml``, ``hdfs-site.xml`` and (storage keys only) ``hive-site.xml``. The
``spark.hadoop.*`` of a running Spark session win over them.

ClientOfProcess: a client of a store, one for each process.

The file of delegation tokens that this process uses: that of its start, or one with shipped tokens.

``hdfs-native`` takes tokens only from the file that ``HADOOP_TOKEN_FILE_LOCATION`` names, and reads it at
each connection. Tokens that come with a task are kept in a file without a name, so that a killed worker
leaves nothing behind.

The keytab that Spark was given, for this process: jobs of many hours outlive all tickets and tokens.

Spark's JVM logs in by ``spark.kerberos.keytab`` and keeps its login fresh; the driver's Python has what it
was started with. In a container of YARN that is a file of tokens, which end one day and are not replaced.
So this process takes the same keytab. The machine's Kerberos library gets a ticket by it, and a new
one when half of its time is over, at each connection to HDFS or to a metastore.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import importlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from metastore_client.delegation_token import DelegationToken, tokens_in
from metastore_client.errors import InvalidConfigurationError
from metastore_client.hive_site import read_hive_site, shipped_by_spark
from mutation_api.errors import ConfigurationError

__all__ = [
    "AUTHENTICATION",
    "HDFS_KIND",
    "TICKETS",
    "VARIABLE",
    "ClientOfProcess",
    "HadoopSettings",
    "active_spark_context",
    "fresh_ticket_cache",
    "has_keytab",
    "hdfs_tokens",
    "last_seconds",
    "log_in_as_spark",
    "private_file",
    "settings_of_spark",
    "use_keytab",
    "use_tokens",
]


AUTHENTICATION = "hadoop.security.authentication"

_SPARK_PREFIX = "spark.hadoop."
_KEYS_OF_STORAGE = ("fs.", "dfs.", "hadoop.", "ipc.", "google.cloud.")
_TRUE = ("true", "1", "yes", "on")
_HADOOP_FILES = ("core-site.xml", "hdfs-site.xml")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class HadoopSettings:
    """Properties by name. Some are secret, so the ``repr`` shows no values.

    ``tokens``: delegation tokens to log in with, in the form of Hadoop's file, for a process without other
    means; they come from the driver (:mod:`mutation_api.spark.credentials`).
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: bytes = field(default=b"", repr=False)

    @classmethod
    def from_environment(cls) -> HadoopSettings:
        """Settings of the files in ``HADOOP_CONF_DIR`` (or ``HADOOP_HOME/etc/hadoop``) and ``HIVE_CONF_DIR``.

        In a container of YARN also those that Spark brought along.

        Raises:
            OSError: EINVAL, a file exists and is not a configuration.
        """
        properties: dict[str, str] = {}
        for file in _files():
            try:
                read = read_hive_site(file)
            except InvalidConfigurationError as error:
                raise OSError(errno.EINVAL, str(error), str(file)) from error
            properties |= {name: text for name, text in read.items() if name.startswith(_KEYS_OF_STORAGE)}
        return cls(properties)

    def with_properties(self, properties: Mapping[str, str]) -> HadoopSettings:
        """The same settings with these properties added; they replace those of the same names."""
        return replace(self, properties={**self.properties, **properties})

    def with_tokens(self, tokens: bytes) -> HadoopSettings:
        """The same with these delegation tokens."""
        return replace(self, tokens=tokens)

    def with_spark(self, context: Any) -> HadoopSettings:
        """The same with the ``spark.hadoop.*`` of a SparkContext."""
        found = {
            name.removeprefix(_SPARK_PREFIX): text
            for name, text in settings_of_spark(context).items()
            if name.startswith(_SPARK_PREFIX)
        }
        return self.with_properties(found)

    @property
    def is_secure(self) -> bool:
        """Whether Hadoop is to ask for Kerberos, or a token."""
        return (self.get(AUTHENTICATION) or "simple").lower() != "simple"

    def get(self, name: str, default: str | None = None) -> str | None:
        """The text of a property; the default if it is missing or empty."""
        return self.properties.get(name, "").strip() or default

    def flag(self, name: str, default: bool) -> bool:
        """A property that is true or false."""
        text = self.get(name)
        return default if text is None else text.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        """A property that is a whole number, with an optional unit of bytes: ``64M``, ``1g``.

        Raises:
            OSError: EINVAL, it is something else.
        """
        text = self.get(name)
        if text is None:
            return default
        digits = text.rstrip("kKmMgGtTbB")
        unit = text[len(digits) :].lower().removesuffix("b")
        if not digits.isdecimal() or unit not in _UNITS:
            raise OSError(
                errno.EINVAL, f"{name} is {text!r}; expected a whole number such as 8388608 or 8M", name
            )
        return int(digits) * _UNITS[unit]

    def __repr__(self) -> str:
        """The number of properties; no values, since some are secret."""
        tokens = ", delegation tokens" if self.tokens else ""
        return f"HadoopSettings({len(self.properties)} properties{tokens})"


def active_spark_context() -> Any:
    """The SparkContext of this process, or None. Does not import pyspark, which need not be installed."""
    pyspark = sys.modules.get("pyspark")
    context_type = getattr(pyspark, "SparkContext", None)
    return getattr(context_type, "_active_spark_context", None)


@functools.lru_cache(maxsize=1)
def settings_of_spark(context: Any) -> Mapping[str, str]:
    """The ``spark.*`` of a SparkContext. Asked for once: they stay as they are while Spark runs, which tells
    them one by one (15 ms for 17 settings).
    """
    return dict(context.getConf().getAll())


def _files() -> Iterator[Path]:
    """Configuration files that exist; a later one wins."""
    home = os.environ.get("HADOOP_HOME")
    hadoop = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    hive = os.environ.get("HIVE_CONF_DIR")
    shipped = shipped_by_spark()  # wins over what the machine has, as in Spark itself
    folders = (hadoop, shipped)
    files = [(hive, "hive-site.xml"), *((each, name) for each in folders for name in _HADOOP_FILES)]
    for folder, name in files:
        file = Path(folder or "") / name
        if folder and file.is_file():
            yield file


_Client = TypeVar("_Client")


class ClientOfProcess(Generic[_Client]):
    """A client, made at its first use. A forked process makes its own: connections must not be shared."""

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._known: tuple[int, _Client] | None = None

    def get(self) -> _Client:
        """The client of this process."""
        process_id = os.getpid()
        known = self._known
        if known is not None and known[0] == process_id:
            return known[1]
        with self._guard:
            if self._known is None or self._known[0] != process_id:
                self._known = (process_id, self._make())
            return self._known[1]

    def forget(self, client: _Client) -> None:
        """Make a new client at the next :meth:`get`, unless this one has been replaced already."""
        with self._guard:
            if self._known is not None and self._known[1] is client:
                self._known = None


VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
HDFS_KIND = "HDFS_DELEGATION_TOKEN"


class _Shipped:
    """Tokens that were given to this process."""

    def __init__(self) -> None:
        self._before: str | None = None
        self._held: contextlib.ExitStack | None = None

    def use(self, tokens: bytes) -> None:
        self._forget()
        if tokens:
            self._before = os.environ.get(VARIABLE)
            self._held = contextlib.ExitStack()
            path = self._held.enter_context(private_file())
            path.write_bytes(tokens)
            os.environ[VARIABLE] = str(path)

    def _forget(self) -> None:
        if self._held is None:
            return
        self._held.close()
        self._held = None
        if self._before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = self._before


@contextlib.contextmanager
def private_file() -> Iterator[Path]:
    """An empty file that only this user can open, for passing secrets; it is removed at the end of the block.

    On systems that support it the file has no name and ends with the process at the latest. Until then other
    processes of the user can open it by its path.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(prefix="hive-mutation-") as file:
            yield Path(file.name)
        return
    descriptor = os.memfd_create("hive-mutation")
    try:
        os.fchmod(descriptor, 0o600)
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


_shipped = _Shipped()


def use_tokens(tokens: bytes) -> None:
    """Use these tokens, in the format of Hadoop's file, in the whole process; empty: those of its start."""
    _shipped.use(tokens)


def last_seconds(tokens: bytes) -> float | None:
    """When the first of these tokens for HDFS ends for good, in seconds since 1970; None: there is none."""
    ends = [each.last_millis / 1000 for each in tokens_in(tokens, "tokens") if each.kind == HDFS_KIND]
    return min(ends, default=None)


def hdfs_tokens() -> list[DelegationToken]:
    """The tokens for HDFS that this process has; none without a file.

    Raises:
        OSError: EINVAL, the file is missing or cannot be read.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    try:
        found = [each for each in tokens_in(Path(path).read_bytes(), path) if each.kind == HDFS_KIND]
        for token in found:
            _ = token.last_millis  # the client would panic at a token that it cannot read
    except (OSError, InvalidConfigurationError) as error:
        raise OSError(
            errno.EINVAL, f"{VARIABLE}: the delegation tokens cannot be read: {error}", path
        ) from None
    return found


TICKETS = "KRB5CCNAME"
KEYTAB = "KRB5_CLIENT_KTNAME"

_PRINCIPAL_KEYS = ("spark.kerberos.principal", "spark.yarn.principal")
_KEYTAB_KEYS = ("spark.kerberos.keytab", "spark.yarn.keytab")
_PROPERTIES = "__spark_conf__.properties"

_guard = threading.Lock()
_used: list[tuple[str, str]] = []
_warned: list[str] = []
_MISSING = (
    "that needs the package gssapi in it: pip install 'hive-mutation-api[kerberos]', or hive-mutate pack "
    "--extras spark,hdfs,kerberos"
)

logger = logging.getLogger(__name__)


def log_in_as_spark() -> None:
    """Use the keytab of this process's Spark, if it has one; later calls do nothing.

    In a container of YARN it is known before there is a session, else by the active session. Without the
    package ``gssapi`` a warning says that it is not used.

    Raises:
        ConfigurationError: see :func:`use_keytab`.
    """
    if _used or _warned:
        return
    settings = _settings_of_spark()
    principal = next(filter(None, (settings.get(key) for key in _PRINCIPAL_KEYS)), None)
    keytab = next(filter(None, (settings.get(key) for key in _KEYTAB_KEYS)), None)
    if principal and keytab and importlib.util.find_spec("gssapi") is None:
        _warned.append(_MISSING)
        logger.warning("the driver's Python does not use the keytab of %s: %s", principal, _MISSING)
    elif principal and keytab:
        use_keytab(principal, Path(keytab))


def has_keytab() -> bool:
    """Whether this process logs in by a keytab of :func:`use_keytab`."""
    return bool(_used)


def use_keytab(principal: str, keytab: Path) -> None:
    """Log this process in by a keytab from now on, and no longer by tickets or tokens that it has.

    Args:
        principal: whose key it is, ``name@REALM`` or ``name/host@REALM``.
        keytab: the file.

    Raises:
        ConfigurationError: there is no such file, the package ``gssapi`` is missing, or no ticket is given
            for that key.
    """
    with _guard:
        if (principal, str(keytab)) in _used:
            return
        path = keytab.absolute()
        if not path.is_file():
            raise ConfigurationError(
                f"{keytab}: the keytab of {principal} (spark.kerberos.keytab) is not there"
            )
        folder = Path(tempfile.mkdtemp(prefix="hive-mutation-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        cache = f"FILE:{folder / 'tickets'}"
        os.environ[KEYTAB] = f"FILE:{path}"
        _first_ticket(principal, path, cache)
        os.environ[TICKETS] = cache
        os.environ.pop(VARIABLE, None)
        _used.append((principal, str(keytab)))


def fresh_ticket_cache() -> Path | None:
    """The file with a ticket that is good for half its time, for programs that read it; None: no keytab."""
    if not _used:
        return None
    _gssapi().Credentials(usage="initiate").lifetime  # noqa: B018  # asking is what renews it
    return Path(os.environ[TICKETS].removeprefix("FILE:"))


def _first_ticket(principal: str, keytab: Path, cache: str) -> None:
    gssapi = _gssapi()
    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        store = {"client_keytab": f"FILE:{keytab}", "ccache": cache}
        gssapi.Credentials(name=name, usage="initiate", store=store).lifetime  # noqa: B018  # asking gets it
    except gssapi.exceptions.GSSError as error:
        raise ConfigurationError(f"no ticket for {principal} by the keytab {keytab}: {error}") from error


def _gssapi() -> Any:
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigurationError(f"the keytab of spark.kerberos.keytab is not used: {_MISSING}") from error


def _settings_of_spark() -> Mapping[str, str]:
    folder = shipped_by_spark()
    if folder is not None and (folder.parent / _PROPERTIES).is_file():
        return _properties((folder.parent / _PROPERTIES).read_text(encoding="utf-8"))
    context = active_spark_context()
    return {} if context is None else settings_of_spark(context)


def _properties(text: str) -> dict[str, str]:
    """Java's properties, as far as Spark writes them: one a line, with ``:``, ``=`` and the like escaped."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.replace("\\", ""): value.replace("\\", "") for name, _, value in pairs}
