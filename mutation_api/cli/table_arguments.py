"""Arguments shared by subcommands: metastores, tables, files, locks, points in time, lists of values.

Files and directories are local paths, or locations on any storage. Columns are lists ``A,B``, and settings
are ``KEY=VALUE``. A point in a table's past is an id, or a time with a time zone. Without a metastore,
options describe a table's directory to the reader.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidConfigurationError
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.cli.parsers import AnyParser, in_option_names, option_names
from mutation_api.cli.terminal import say_aside
from mutation_api.errors import ConfigurationError
from mutation_api.read.directory_scan import ACID_VERSION_AUTO, ACID_VERSIONS, TABLE_KINDS, open_directory
from mutation_api.read.export import FORMATS, extension, file_format
from mutation_api.read.table_view import TableView
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient


def add_format_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--format``."""
    parser.add_argument("--format", choices=FORMATS, help=what)


def add_output_argument(
    group: AnyParser,
    what: str,
) -> None:
    """Declare ``--output``."""
    group.add_argument("--output", type=location_from, metavar="FILE", help=what)


def location_from(text: str) -> Location:
    """Parse a location argument: ``hdfs://…``, ``s3a://…``, ``file:/…`` or a path.

    Raises:
        argparse.ArgumentTypeError: If it is not a location.
    """
    try:
        return Location.given(text)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from error


def input_format(file: Location, given: str | None) -> str:
    """Return the format given with ``--format``, otherwise the format that the file's extension names.

    Raises:
        ConfigurationError: If the format is unknown.
    """
    with in_option_names({"format_name": "--format"}):
        return file_format(file, given)


def output_format(file: Location) -> str:
    """Return the format that the extension of ``--output`` names. Call this before anything is read.

    Raises:
        ConfigurationError: If the extension is unknown, the name is a directory, or its parent directory does
            not exist.
    """
    found = extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"--output {file.shown}: the name must end in {', '.join(f'.{each}' for each in FORMATS)}"
        )
    check_new_file("--output", file)
    return found


def check_new_file(option: str, file: Location) -> None:
    """Raise ConfigurationError if a file of this machine cannot be created at a location."""
    path = file.local_path
    if path is not None and (Path(path).is_dir() or not Path(path).parent.is_dir()):
        raise ConfigurationError(
            f"{option} {file.shown}: it is a directory, or its parent directory does not exist"
        )


def add_key_argument(parser: argparse.ArgumentParser, what: str, *, is_required: bool = True) -> None:
    """Declare ``--key``."""
    parser.add_argument("--key", required=is_required, metavar="A,B", help=what)


def key_columns(text: str) -> tuple[str, ...]:
    """Return the column names in ``--key``.

    Raises:
        ConfigurationError: If there are none.
    """
    names = listed_names(text)
    if not names:
        raise ConfigurationError("--key: name at least one column")
    return names


def listed_names(text: str) -> tuple[str, ...]:
    """Return the names in a list such as ``a,b``. An empty string contains none.

    Raises:
        ConfigurationError: If a name is empty. The order may matter, so an empty name is not skipped.
    """
    names = tuple(name.strip() for name in text.split(","))
    if names == ("",):
        return ()
    if "" in names:
        raise ConfigurationError(f"{text!r}: the list contains an empty name; expected A,B")
    return names


def optional_names(text: str | None) -> tuple[str, ...] | None:
    """Return the names of a list such as ``A,B``, or None if the option is not given."""
    return None if text is None else listed_names(text)


def key_values(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the key and the value of each ``KEY=VALUE`` of an option.

    Raises:
        ConfigurationError: If a string does not have this form.
    """
    wrong = [text for text in texts if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise ConfigurationError(f"{option} {wrong[0]!r}: expected KEY=VALUE")
    return [(key, value) for key, _, value in (text.partition("=") for text in texts)]


def add_metastore_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--metastore``, ``--hive-conf`` and ``--user``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--metastore",
        metavar="URI",
        help="address of the metastore, thrift://host:port, or several separated by commas "
        "(default: hive-site.xml)",
    )
    group.add_argument(
        "--hive-conf",
        metavar="PATH",
        help="path of hive-site.xml, or of its directory (default: HIVE_CONF_DIR, then HADOOP_CONF_DIR)",
    )
    parser.add_argument(
        "--user", help="user name for the metastore (default: HADOOP_USER_NAME, then your login name)"
    )


def metastore_from(arguments: argparse.Namespace) -> ThriftMetastoreClient:
    """Connect to the metastore that the options name. The caller closes the client.

    Raises:
        InvalidConfigurationError: If the address is missing or invalid.
        MetastoreUnavailableError: If no server answered.
    """
    path = None if arguments.hive_conf is None else Path(arguments.hive_conf)
    target = arguments.metastore if path is None else path
    try:
        return open_client(target, user=arguments.user)
    except InvalidConfigurationError as error:
        if target is not None:
            raise
        raise InvalidConfigurationError(
            f"{error}; pass an address with --metastore, or a file with --hive-conf"
        ) from error


def reading_client(metastore: MetastoreClient, arguments: argparse.Namespace) -> MutatorClient:
    """Return a client for snapshots, which waits as long as ``--lock-timeout`` allows."""
    return MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(arguments.lock_timeout).build()


class ReportLoss:
    """A listener that reports a lost transaction immediately.

    The command itself fails only when its work has stopped.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """Report the loss on standard error. Called from the heartbeat's thread."""
        what = f"transaction {txn_id} on {', '.join(tables)} is lost"
        say_aside(f"hive-mutate: {what}, stopping: {error}")


def add_lock_timeout_argument(
    parser: AnyParser,
    for_whom: str,
) -> None:
    """Declare ``--lock-timeout``.

    Args:
        parser: the parser or group to which the option is added.
        for_whom: the possible holders of the lock, for the help text.
    """
    parser.add_argument(
        "--lock-timeout",
        type=float,
        default=LOCK_TIMEOUT_SECONDS_DEFAULT,
        metavar="SECONDS",
        help=f"maximum time to wait for {for_whom}, in seconds (default: %(default)g)",
    )


def add_attempts_argument(
    parser: AnyParser,
) -> None:
    """Declare ``--attempts``."""
    parser.add_argument(
        "--attempts",
        type=int,
        default=1,
        metavar="N",
        help="number of attempts, each in a new transaction, if another writer commits first or holds the "
        "lock for too long, or if the transaction is ended from outside; each failure is reported "
        "(default: %(default)s)",
    )


def point_in_time(text: str) -> int | datetime.datetime:
    """Parse an argument such as ``17``, ``2026-03-01T12:00:00Z`` or ``2026-03-01 12:00+01:00``.

    Raises:
        argparse.ArgumentTypeError: If it is neither an id nor a time, or a time without a time zone.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an id nor a time such as 2026-03-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: add Z or an offset such as +01:00")
    return moment


DIRECTORY_OPTIONS = {
    **option_names(
        *("acid_version", "partition_schema", "transactional_properties", "valid_txns", "valid_write_ids")
    ),
    "num_buckets": "--buckets",
}
"""The option for each argument of :func:`~mutation_api.read.directory_scan.open_directory`."""

_DESCRIBING = (
    *("schema", "partition_schema", "transactional_properties", "acid_version"),
    *("valid_txns", "valid_write_ids", "buckets"),
)


def add_directory_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--location`` and the options that go with it."""
    group = parser.add_argument_group("without a metastore")
    group.add_argument(
        "--location",
        type=location_from,
        metavar="DIR",
        help="directory of a table, or a copy of it: a path, hdfs://…, s3a://…",
    )
    group.add_argument(
        "--schema", metavar="TEXT", help="data columns of the table, such as 'id bigint, msg string'"
    )
    group.add_argument(
        "--partition-schema",
        metavar="TEXT",
        help="partition columns of the table, such as 'ds string' (default: strings, named after the "
        "key=value directories)",
    )
    group.add_argument(
        "--transactional-properties",
        choices=TABLE_KINDS,
        help="the table property transactional_properties (default: legacy for Hive 2, default for later "
        "releases)",
    )
    group.add_argument(
        "--acid-version",
        choices=ACID_VERSIONS,
        help="version of the file layout: 1 for Hive 2, 2 for later releases (default: auto, which "
        "detects it)",
    )
    group.add_argument(
        "--valid-txns",
        metavar="TEXT",
        help="visible transactions, such as 10:9223372036854775807:3:5; with ACID version 2 those of "
        "compactions (default: all)",
    )
    group.add_argument(
        "--valid-write-ids",
        metavar="TEXT",
        help="visible write ids, such as db.table:10:9223372036854775807::3,5; only with ACID version 2 "
        "(default: all)",
    )
    group.add_argument(
        "--buckets",
        type=int,
        metavar="N",
        help="bucket count of the table (default: detected from the files)",
    )


def check_directory_usage(arguments: argparse.Namespace) -> None:
    """Refuse a table of the metastore together with a directory, options of the other, and neither."""
    refuse: Callable[[str], None] = arguments.refuse_usage
    if (arguments.table is None) == (arguments.location is None):
        refuse("pass either DB.TABLE or --location DIR")
    if arguments.location is not None:
        if arguments.schema is None:
            refuse("--location needs --schema, for example --schema 'id bigint, msg string'")
        return
    for name in _DESCRIBING:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            refuse(f"{option} can only be used with --location; for DB.TABLE it comes from the metastore")


def directory_from(arguments: argparse.Namespace) -> TableView:
    """Open the directory that the options describe.

    Raises the errors of :func:`mutation_api.read.directory_scan.open_directory`.
    """
    return open_directory(
        arguments.location,
        arguments.schema,
        partition_schema=arguments.partition_schema,
        transactional_properties=arguments.transactional_properties,
        acid_version=arguments.acid_version or ACID_VERSION_AUTO,
        valid_txns=arguments.valid_txns,
        valid_write_ids=arguments.valid_write_ids,
        num_buckets=arguments.buckets,
    )
