"""Workers' credentials for storage: delegation tokens that Spark's driver requests for them.

A worker on a cluster has no ticket, and the token file that it was started with expires. So each job carries
new tokens. They are not renewed: they are valid for a day (``dfs.namenode.delegation.token.renew-interval``),
which bounds the time of a job, or of a DataFrame that is evaluated later.

This is the only module that calls Hadoop in the driver's JVM.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from mutation_api.errors import WorkerError
from mutation_api.spark.jvm import hadoop_configuration, jvm_of
from mutation_api.storage.connect import settings, token_issuers
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs.token_file import HDFS_KIND, private_file
from mutation_api.storage.location import Location

__all__ = ["worker_settings"]

logger = logging.getLogger(__name__)

_KINDS = (HDFS_KIND, "kms-dt")
"""The kinds of tokens that storage needs. Other secrets stay in the driver."""

_PY4J_LOGGERS = ("py4j.java_gateway", "py4j.clientserver")


def worker_settings(context: SparkContext, locations: Iterable[Location]) -> HadoopSettings:
    """The storage settings for a job's tasks, with new tokens for the file systems of these locations.

    Raises:
        WorkerError: a file system issues no token.
        OSError: see :func:`mutation_api.storage.connect.settings`.
    """
    _keep_traffic_out_of_logs()
    issuers = token_issuers(locations)
    if not issuers:
        return settings()
    try:
        tokens = _tokens(context, issuers)
    except Py4JError as error:
        reason = str(getattr(error, "java_exception", None) or error).splitlines()[0]
        raise WorkerError(
            f"no delegation tokens for the workers could be obtained from {', '.join(issuers)}: {reason}; "
            "the user of Spark's driver needs a valid ticket or keytab (see klist, spark.kerberos.keytab)"
        ) from None
    if tokens is None:
        logger.warning(
            "Spark's driver has neither a ticket nor tokens for %s (is hadoop.security.authentication set in "
            "its HADOOP_CONF_DIR or spark.hadoop.*?): its workers need their own tickets",
            ", ".join(issuers),
        )
        return settings()
    return settings().with_tokens(tokens)


def _keep_traffic_out_of_logs() -> None:
    """Filter py4j's logs: at level DEBUG it logs all data sent to the JVM, also secrets of functions."""
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_above_debug)


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _tokens(context: SparkContext, issuers: Sequence[str]) -> bytes | None:
    """New tokens of these file systems if the JVM may request them, and existing ones; None without any."""
    jvm = jvm_of(context)
    security = jvm.org.apache.hadoop.security
    user = security.UserGroupInformation.getCurrentUser()
    found = security.Credentials()
    if user.hasKerberosCredentials():
        for issuer in issuers:
            _add_new_token(jvm, hadoop_configuration(context), issuer, user, found)
    found.mergeAll(user.getCredentials())  # does not overwrite the new ones
    taken = security.Credentials()
    for token in found.getAllTokens().toArray():
        if token.getKind().toString() in _KINDS:
            taken.addToken(token.getService(), token)
    return _written(jvm, taken) if taken.numberOfTokens() else None


def _add_new_token(jvm: Any, configuration: Any, issuer: str, user: Any, found: Any) -> None:
    """Request a token for the user from a file system.

    A file system issues tokens to Kerberos logins only, and Spark's own user has tokens that would be used
    instead. So the ticket is used separately. A user with a keytab has the tokens that Spark renews, or none
    yet.
    """
    address = jvm.java.net.URI(issuer)
    cache = _ticket_cache()
    if cache.is_file() and not user.isFromKeytab():
        apart = jvm.org.apache.hadoop.conf.Configuration(configuration)
        apart.set("hadoop.security.kerberos.ticket.cache.path", str(cache))
        files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(address, apart, None)
        try:
            files.addDelegationTokens(user.getShortUserName(), found)
        finally:
            files.close()
        return
    files = jvm.org.apache.hadoop.fs.FileSystem.get(address, configuration)
    service = files.getCanonicalServiceName()
    if user.getCredentials().getToken(jvm.org.apache.hadoop.io.Text(service)) is None:
        files.addDelegationTokens(user.getShortUserName(), found)


def _ticket_cache() -> Path:
    """The ticket cache where Java looks for it."""
    name = os.environ.get("KRB5CCNAME") or f"/tmp/krb5cc_{os.getuid()}"
    return Path(name.removeprefix("FILE:"))


def _written(jvm: Any, credentials: Any) -> bytes:
    """The credentials in Hadoop's file format. They pass through a file, because py4j logs its answers."""
    with private_file() as path:
        stream = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(str(path)))
        credentials.writeTokenStorageToStream(stream)
        stream.close()
        return path.read_bytes()
