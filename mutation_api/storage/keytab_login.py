"""The keytab that Spark was given, for this process: jobs of many hours outlive all tickets and tokens.

Spark's JVM logs in by ``spark.kerberos.keytab`` and keeps its login fresh; the driver's Python has what it
was started with. In a container of YARN that is a file of tokens, which end one day and are not replaced.
So this process takes the same keytab. The machine's Kerberos library gets a ticket by it, and a new
one when half of its time is over, at each connection to HDFS or to a metastore.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metastore_client.hive_site import shipped_by_spark
from mutation_api.errors import ConfigurationError
from mutation_api.storage.hadoop_settings import active_spark_context, settings_of_spark
from mutation_api.storage.hdfs.token_file import VARIABLE

__all__ = ["TICKETS", "fresh_ticket_cache", "has_keytab", "log_in_as_spark", "use_keytab"]

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
