"""The storage settings in Hadoop's configuration, tickets and tokens, and clients that are shared within a
process.

Settings are read from ``core-site.xml``, ``hdfs-site.xml`` and (only storage keys) ``hive-site.xml``, so
users need not repeat them. The ``spark.hadoop.*`` settings of a running Spark session take precedence.

``hdfs-native`` takes tokens only from the file that ``HADOOP_TOKEN_FILE_LOCATION`` names, and reads it at
each connection. Tokens that arrive with a task are kept in a file without a name, so that a killed worker
leaves nothing behind.

If Spark has a keytab, this process logs in with it, since jobs of many hours outlive all tickets and tokens.
Spark's JVM logs in with ``spark.kerberos.keytab`` and renews its login. The driver's Python has only the
credentials with which it started. In a YARN container, these are a file of tokens, which eventually expire
and are not replaced. The machine's Kerberos library gets a ticket with the keytab. When half of the ticket's
lifetime is over, the library gets a new one at the next connection to HDFS or to a metastore.
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

AUTHENTICATION = "hadoop.security.authentication"

_SPARK_PREFIX = "spark.hadoop."
_KEYS_OF_STORAGE = ("fs.", "dfs.", "hadoop.", "ipc.", "google.cloud.")
_TRUE = ("true", "1", "yes", "on")
_HADOOP_FILES = ("core-site.xml", "hdfs-site.xml")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True)
class HadoopSettings:
    """Properties by name. Some are secret, so the ``repr`` shows no values.

    ``tokens`` are delegation tokens to log in with, in the format of Hadoop's file. They are for a process
    without other credentials and come from the driver (:mod:`mutation_api.spark.credentials`).
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: bytes = field(default=b"", repr=False)

    @classmethod
    def from_environment(cls) -> HadoopSettings:
        """Read the files in ``HADOOP_CONF_DIR`` (or ``HADOOP_HOME/etc/hadoop``) and ``HIVE_CONF_DIR``.

        If Spark shipped files to this YARN container, they are read as well.

        Raises:
            OSError: If a file exists but is not a configuration (EINVAL).
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
        """Return these settings with more properties, which replace those of the same names."""
        return replace(self, properties={**self.properties, **properties})

    def with_tokens(self, tokens: bytes) -> HadoopSettings:
        """Return these settings with delegation tokens."""
        return replace(self, tokens=tokens)

    def with_spark(self, context: Any) -> HadoopSettings:
        """Return these settings with the ``spark.hadoop.*`` settings of a SparkContext."""
        found = {
            name.removeprefix(_SPARK_PREFIX): text
            for name, text in settings_of_spark(context).items()
            if name.startswith(_SPARK_PREFIX)
        }
        return self.with_properties(found)

    @property
    def is_secure(self) -> bool:
        """True if Hadoop requires Kerberos or a token."""
        return (self.get(AUTHENTICATION) or "simple").lower() != "simple"

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of a property, or the default if it is missing or empty."""
        return self.properties.get(name, "").strip() or default

    def flag(self, name: str, default: bool) -> bool:
        """Return the value of a boolean property."""
        text = self.get(name)
        return default if text is None else text.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        """Return the value of an integer property, with an optional unit of bytes: ``64M``, ``1g``.

        Raises:
            OSError: If the value is not such a number (EINVAL).
        """
        text = self.get(name)
        if text is None:
            return default
        digits = text.rstrip("kKmMgGtTbB")
        unit = text[len(digits) :].lower().removesuffix("b")
        if not digits.isdecimal() or unit not in _UNITS:
            raise OSError(
                errno.EINVAL, f"{name}: expected a whole number such as 8388608 or 8M, got {text!r}", name
            )
        return int(digits) * _UNITS[unit]

    def __repr__(self) -> str:
        """Return the number of properties. Values are not shown, since some are secret."""
        tokens = ", delegation tokens" if self.tokens else ""
        return f"HadoopSettings({len(self.properties)} properties{tokens})"


def active_spark_context() -> Any:
    """Return the SparkContext of this process, or None.

    This does not import pyspark, which may not be installed.
    """
    pyspark = sys.modules.get("pyspark")
    context_type = getattr(pyspark, "SparkContext", None)
    return getattr(context_type, "_active_spark_context", None)


@functools.lru_cache(maxsize=1)
def settings_of_spark(context: Any) -> Mapping[str, str]:
    """Return the ``spark.*`` settings of a SparkContext.

    They are requested once, since they do not change while Spark runs and Spark returns them one by one (15
    ms for 17 settings).
    """
    return dict(context.getConf().getAll())


def _files() -> Iterator[Path]:
    """Yield the configuration files that exist. A later one takes precedence."""
    home = os.environ.get("HADOOP_HOME")
    hadoop = os.environ.get("HADOOP_CONF_DIR") or (home and f"{home}/etc/hadoop")
    hive = os.environ.get("HIVE_CONF_DIR")
    shipped = shipped_by_spark()  # takes precedence over the machine's files, as in Spark itself
    folders = (hadoop, shipped)
    files = [(hive, "hive-site.xml"), *((each, name) for each in folders for name in _HADOOP_FILES)]
    for folder, name in files:
        file = Path(folder or "") / name
        if folder and file.is_file():
            yield file


_Client = TypeVar("_Client")


class ClientOfProcess(Generic[_Client]):
    """A client that is created when it is first used. A forked process creates its own, because connections
    must not be shared.
    """

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._known: tuple[int, _Client] | None = None

    def get(self) -> _Client:
        """Return the client of this process."""
        process_id = os.getpid()
        known = self._known
        if known is not None and known[0] == process_id:
            return known[1]
        with self._guard:
            if self._known is None or self._known[0] != process_id:
                self._known = (process_id, self._make())
            return self._known[1]

    def forget(self, client: _Client) -> None:
        """Create a new client at the next :meth:`get`, unless this one has already been replaced."""
        with self._guard:
            if self._known is not None and self._known[1] is client:
                self._known = None


VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
HDFS_KIND = "HDFS_DELEGATION_TOKEN"


class _Shipped:
    """The tokens that were given to this process."""

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
    """Create an empty file for passing secrets. Only this user can open it, and the block's end removes it.

    On systems that support it, the file has no name and ends with the process at the latest. Until then,
    other processes of the user can open it by its path.
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
    """Use these tokens, in the format of Hadoop's file, in the whole process.

    If they are empty, use the original ones.
    """
    _shipped.use(tokens)


def last_seconds(tokens: bytes) -> float | None:
    """Return the earliest time at which one of these HDFS tokens finally expires, in seconds since 1970.

    Return None if there are none.
    """
    ends = [each.last_millis / 1000 for each in tokens_in(tokens, "tokens") if each.kind == HDFS_KIND]
    return min(ends, default=None)


def hdfs_tokens() -> list[DelegationToken]:
    """Return this process's tokens for HDFS. Without a file there are none.

    Raises:
        OSError: If the file is missing or cannot be read (EINVAL).
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    try:
        found = [each for each in tokens_in(Path(path).read_bytes(), path) if each.kind == HDFS_KIND]
        for token in found:
            _ = token.last_millis  # the client would panic on a token that it cannot read
    except (OSError, InvalidConfigurationError) as error:
        raise OSError(errno.EINVAL, f"{VARIABLE}: cannot read the delegation tokens: {error}", path) from None
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
    "this requires the package gssapi in the driver's Python: pip install 'hive-mutation-api[kerberos]', or "
    "hive-mutate pack --extras spark,hdfs,kerberos"
)

logger = logging.getLogger(__name__)


def log_in_as_spark() -> None:
    """Use the keytab of this process's Spark, if it has one. Later calls do nothing.

    In a YARN container, the keytab is known before there is a session. Otherwise the active session names it.
    Without the package ``gssapi``, a warning says that the keytab is not used.

    Raises:
        ConfigurationError: If :func:`use_keytab` fails.
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
    """Return True if this process logs in with a keytab of :func:`use_keytab`."""
    return bool(_used)


def use_keytab(principal: str, keytab: Path) -> None:
    """From now on, log this process in with a keytab, instead of with its tickets or tokens.

    Args:
        principal: owner of the key, ``name@REALM`` or ``name/host@REALM``.
        keytab: the keytab file.

    Raises:
        ConfigurationError: If the file does not exist, if the package ``gssapi`` is missing, or if no ticket
            can be obtained with the key.
    """
    with _guard:
        if (principal, str(keytab)) in _used:
            return
        path = keytab.absolute()
        if not path.is_file():
            raise ConfigurationError(
                f"{keytab}: the keytab of {principal} (spark.kerberos.keytab) does not exist"
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
    """Return the file with a ticket that has at least half of its lifetime left, for programs that read it.

    Return None if there is no keytab.
    """
    if not _used:
        return None
    _gssapi().Credentials(usage="initiate").lifetime  # noqa: B018  # reading it renews the ticket
    return Path(os.environ[TICKETS].removeprefix("FILE:"))


def _first_ticket(principal: str, keytab: Path, cache: str) -> None:
    gssapi = _gssapi()
    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        store = {"client_keytab": f"FILE:{keytab}", "ccache": cache}
        gssapi.Credentials(name=name, usage="initiate", store=store).lifetime  # noqa: B018  # reading gets it
    except gssapi.exceptions.GSSError as error:
        raise ConfigurationError(f"cannot get a ticket for {principal} with {keytab}: {error}") from error


def _gssapi() -> Any:
    try:
        return importlib.import_module("gssapi")
    except ImportError as error:
        raise ConfigurationError(f"cannot use the keytab of spark.kerberos.keytab: {_MISSING}") from error


def _settings_of_spark() -> Mapping[str, str]:
    folder = shipped_by_spark()
    if folder is not None and (folder.parent / _PROPERTIES).is_file():
        return _properties((folder.parent / _PROPERTIES).read_text(encoding="utf-8"))
    context = active_spark_context()
    return {} if context is None else settings_of_spark(context)


def _properties(text: str) -> dict[str, str]:
    """Read Java properties as Spark writes them: one per line, with ``:``, ``=`` and the like escaped."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.replace("\\", ""): value.replace("\\", "") for name, _, value in pairs}
