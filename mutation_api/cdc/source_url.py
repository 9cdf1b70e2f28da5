"""The URLs and files that name a source.

A :class:`SourceUrl` is the address of a relational database, as a user gives it and as a Hive table's
properties keep it. There is one parser, so the URL that is checked is the URL that is used. A string of
another form is refused and never shown: after a typing error, any part of it may contain a password. Only
options from a fixed list are allowed: others would connect to another host, read files, load code, or run
statements (``hostaddr``, ``service``, ``read_default_file``, ``init_command``, ``plugin``, …).

Files of sources may be on any storage. Messages and watermarks name a local file by its plain path, and any
other file by its location.

Source: PostgreSQL's documentation, "Parameter Key Words" of libpq. PyMySQL's ``connect``. SQLite's "URI
Filenames". SQLAlchemy's "Database URLs".
"""

from __future__ import annotations

import hashlib
import io
import logging
import re
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode

from mutation_api.errors import ConfigurationError, InputError
from mutation_api.format.layout import is_hidden
from mutation_api.format.printable import check_no_secret
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location, LocationLike
from mutation_api.storage.protocol import FileEntry

_POSTGRESQL = (
    "sslmode sslrootcert sslcert sslkey sslcrl sslcrldir sslcompression sslsni sslnegotiation sslcertmode "
    "ssl_min_protocol_version ssl_max_protocol_version requiressl gssencmode gsslib krbsrvname "
    "channel_binding require_auth requirepeer connect_timeout tcp_user_timeout keepalives keepalives_idle "
    "keepalives_interval keepalives_count application_name target_session_attrs passfile host port"
)
_MYSQL = (
    "charset ssl_ca ssl_cert ssl_key ssl_check_hostname ssl_disabled ssl_verify_cert ssl_verify_identity "
    "connect_timeout read_timeout write_timeout program_name unix_socket"
)
_OPTIONS = {
    "postgresql": _POSTGRESQL.split(),
    "mysql": _MYSQL.split(),
    "mariadb": _MYSQL.split(),
    "sqlite": ["mode", "cache", "uri", "timeout", "immutable"],
}
KINDS = tuple(_OPTIONS)
"""The supported kinds of databases."""

_SWITCH = "true|false|1|0|yes|no|on|off"
_SECONDS = "[0-9]{1,6}"
_VALUES = {
    "host": "/.*",
    "charset": "utf8mb4|utf8",
    "port": "[0-9]{1,5}",
    **dict.fromkeys(
        ("ssl_check_hostname", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"), _SWITCH
    ),
    **dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout", "timeout"), _SECONDS),
    "mode": "ro|rw|rwc|memory",
    "cache": "shared|private",
    **dict.fromkeys(("uri", "immutable"), _SWITCH),
}
"""The patterns of values. A ``host`` option is the directory of a socket; the name of a server comes before
the path."""
_ONLY_OF_URI = {"mode", "cache", "immutable"}
"""Options of SQLite that require uri=true."""
_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_SAME_SERVER = {"mariadb": "mysql"}
_SERVER = re.compile(
    r"(?P<user>[^:/?#@\s]*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.,-]*)(?::(?P<port>[0-9]{1,5}))?"
    r"/(?P<database>[^:/?#@\s]+)(?:\?(?P<options>[^#]*))?"
)
_FILE = re.compile(r"/(?P<database>[^?]+)(?:\?(?P<options>.*))?", re.DOTALL)
_KIND = re.compile(r"(?P<kind>[a-z0-9]+)(?:\+[a-z0-9_]+)?://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class SourceUrl:
    """The address of a database, without a password.

    Attributes:
        kind: one of KINDS.
        user: name of the account, '' if there is none.
        host: name or IP address of the server, '' for the driver's default. PostgreSQL accepts several,
            separated by commas.
        port: port of the server. If None, the kind's default.
        database: name of the database, or path of the file for SQLite.
        options: options of the driver's connection, from a fixed list.
    """

    kind: str
    user: str = ""
    host: str = ""
    port: int | None = None
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        text: str,
        *,
        what: str = "the URL of the source",
        because: str = "since it is stored and shown",
        kinds: tuple[str, ...] = KINDS,
    ) -> SourceUrl:
        """Parse ``postgresql://USER@HOST[:PORT]/DATABASE[?OPTION=VALUE&…]``, or ``sqlite:////PATH``.

        Special characters in parts of a server's URL can be written as %XX. A driver after the kind
        (``mysql+pymysql``) is left out.

        Args:
            text: the URL.
            what: name of the URL in messages.
            because: why it must not have a password, and where to give the password.
            kinds: the kinds that are allowed here.

        Raises:
            ConfigurationError: If the string is not such a URL, may contain a secret, or has an option that
                is not allowed. The message does not show it.
        """
        check_no_secret(text, what=what, because=because)
        scheme = _KIND.match(text)
        kind = "" if scheme is None else scheme["kind"]
        if scheme is None or kind not in kinds:
            raise ConfigurationError(
                f"{what}: unknown kind of database, expected one of {', '.join(kinds)} (it is not shown, "
                "since it may contain a password)"
            )
        is_file = kind == "sqlite"
        found = (_FILE if is_file else _SERVER).fullmatch(text, scheme.end())
        parts = {} if found is None else {name: value or "" for name, value in found.groupdict().items()}
        user = unquote(parts.get("user", "")).removesuffix("@")
        database = parts.get("database", "") if is_file else unquote(parts.get("database", ""))
        port = int(parts.get("port") or 0)
        if not database or ":" in user or port > 65535 or _CONTROL.search(user + database):
            raise ConfigurationError(
                f"{what} is not a URL such as postgresql://reader@db.example/shop, mysql://… or "
                "sqlite:////path/to/file: it must name the database, must not have a password, and must "
                "write special characters of names as %XX (an @ in a name is %40). It is not shown, since it "
                "may contain a password"
            )
        return cls(
            kind=kind,
            user=user,
            host=parts.get("host", "").strip("[]"),
            port=port or None,
            database=database,
            options=_options(parts["options"], kind, what),
        )

    def __str__(self) -> str:
        """Return the URL, which :meth:`of` can parse again."""
        options = urlencode(sorted(self.options.items()), quote_via=quote, safe="/:")
        end = f"?{options}" if options else ""
        if self.kind == "sqlite":
            return f"sqlite:///{self.database}{end}"
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{self.kind}://{user}{host}{port}/{quote(self.database, safe='{}')}{end}"

    def is_same(self, other: SourceUrl) -> bool:
        """Return True if both connect the same account to the same database with the same options."""
        return self._place() == other._place()

    @property
    def server_kind(self) -> str:
        """The kind of its server: MariaDB and MySQL count as one, as either scheme connects to both."""
        return _SAME_SERVER.get(self.kind, self.kind)

    def _place(self) -> tuple[object, ...]:
        port = self.port or _PORTS.get(self.kind)
        return (
            self.server_kind,
            self.user,
            self.host.lower(),
            port,
            self.database,
            sorted(self.options.items()),
        )


def _options(text: str, kind: str, what: str) -> dict[str, str]:
    """Parse the options. Raises ConfigurationError if one is not allowed; it names only its number."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        pairs = [("", "")]
    for number, (name, value) in enumerate(pairs, 1):
        is_known = name in _OPTIONS[kind] and [each for each, _ in pairs].count(name) == 1
        form = _VALUES.get(name, ".*")
        if not is_known or _CONTROL.search(value) or not re.fullmatch(form, value):
            raise ConfigurationError(
                f"{what}: option {number} after the ? is not allowed, is given twice, or has a value that "
                f"is not allowed (it is not shown, since it may contain a password). Allowed are NAME=VALUE "
                f"with the names {', '.join(_OPTIONS[kind])}; times are whole seconds, switches are true or "
                "false, host is the directory of a socket, and charset is utf8mb4. Set other options in the "
                "server, or in the driver's own files"
            )
    found = dict(pairs)
    if not _ONLY_OF_URI.isdisjoint(found) and "uri" not in found:
        raise ConfigurationError(f"{what}: the options {', '.join(sorted(_ONLY_OF_URI))} require uri=true")
    return found


LocationsLike = LocationLike | Sequence[LocationLike]
"""The files and directories that a user names: one or several."""

FINGERPRINT_BYTES = 64 * 1024
"""The number of bytes before a watermark that must be unchanged."""

_BEING_COPIED = "._COPYING_"
"""The end of the name of a file that "hadoop fs -put" is still writing."""

_READ_BYTES = 4 * 1024 * 1024
"""The bytes of one request when a whole file is read: even a small request takes time."""


def located(given: LocationLike) -> Location:
    """Return the location that a user named. Raises ConfigurationError if it is not valid."""
    try:
        return Location.given(given)
    except OSError as error:
        raise ConfigurationError(f"{given}: {error.strerror}") from error


def all_located(given: LocationsLike) -> tuple[Location, ...]:
    """Return the locations that a user named. Raises ConfigurationError if one is not valid."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return (located(given),)
    return tuple(map(located, given))


def entry_at(location: Location) -> FileEntry | None:
    """Return the file or directory at a location, or None. Raises OSError."""
    return storage_at(location).stat(location)


def children(folder: Location) -> list[FileEntry]:
    """List files and directories in a directory by name, except hidden and partly copied ones.

    Raises OSError.
    """
    found = storage_at(folder).list(folder)
    return [e for e in found if not is_hidden(e.name) and not e.name.endswith(_BEING_COPIED)]


def is_link(folder: Location) -> bool:
    """Return True if it is a link to another directory; only local disks have links."""
    return folder.local_path is not None and Path(folder.local_path).is_symlink()


@contextmanager
def opened(location: Location, *, read_bytes: int = _READ_BYTES) -> Iterator[io.BufferedReader]:
    """Open a file for reading; each request asks for ``read_bytes``. Raises OSError."""
    with (
        storage_at(location).open_input(location) as stream,
        io.BufferedReader(stream, read_bytes) as file,
    ):
        yield file


def fingerprint(location: Location, end: int) -> str:
    """Return the md5 of the bytes before ``end``, which distinguishes a file from one that replaced it.

    Raises OSError.
    """
    with opened(location, read_bytes=FINGERPRINT_BYTES) as file:
        file.seek(max(0, end - FINGERPRINT_BYTES))
        return fingerprint_of(file.read(min(end, FINGERPRINT_BYTES)))


def fingerprint_of(last_bytes: bytes) -> str:
    """Return the fingerprint of a file from its last FINGERPRINT_BYTES, or all bytes if it is shorter."""
    return hashlib.md5(last_bytes, usedforsecurity=False).hexdigest()


@contextmanager
def input_errors(what: str) -> Iterator[None]:
    """Raise InputError, which begins with ``what``, if files cannot be read or written in the block."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise InputError(f"{what}: {error}") from error


def readable(source_id: str) -> AbstractContextManager[None]:
    """Return a block that raises InputError, which names the source, if its files cannot be read."""
    return input_errors(f"{source_id}: its files cannot be read")


@contextmanager
def needs_extra(what: str, extra: str, where: str = "") -> Iterator[None]:
    """Raise ConfigurationError if the block imports a package of an extra that is not installed.

    Args:
        what: the beginning of the message, such as ``topics need``.
        extra: the extra that installs the package.
        where: the machines that need the package, if it is not this one alone.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{what} the Python module {error.name!r}{where}: pip install 'hive-mutation-api[{extra}]'"
        ) from error


_OWN_NAME = "hive-mutate-"

_log = logging.getLogger(__name__)


class OwnFolder:
    """A temporary directory of a source; each read of the source gets a new one and removes the last one.

    The last directory is removed with this object, even if :meth:`remove` is not called, as at the end of a
    command.
    """

    def __init__(self, directory: Location | None) -> None:
        """``directory``: where the directories are made. If None, the system's for temporary files."""
        self._directory = directory
        self.remove: Callable[[], object] = _nothing

    def renewed(self, what: str) -> Location:
        """Return a new directory. Raises InputError, whose message begins with ``what``."""
        self.remove()
        with input_errors(f"{what} cannot be buffered until they are applied"):
            folder = _made(self._directory)
        self.remove = weakref.finalize(self, _remove, folder)
        return folder


def _nothing() -> None:
    pass


def _made(directory: Location | None) -> Location:
    """Make a new directory in this one. If None, in the system's directory for temporary files.

    On a local disk only this user can read it. Raises OSError.
    """
    directory = directory or Location.given(tempfile.gettempdir())
    local = directory.local_path
    if local is not None:
        Path(local).mkdir(parents=True, exist_ok=True)
        return Location.given(tempfile.mkdtemp(prefix=_OWN_NAME, dir=local))
    folder = directory / f"{_OWN_NAME}{uuid.uuid4().hex}"
    storage_at(folder).create_directory(folder)
    return folder


def _remove(folder: Location) -> None:
    """Remove the directory and its contents; log a warning if that fails."""
    try:
        storage_at(folder).delete_directory(folder)
    except OSError:
        _log.warning(
            "%s: the directory holds rows of the source and could not be deleted. Delete it by hand",
            folder,
            exc_info=True,
        )
