"""Workers' credentials for storage: delegation tokens that Spark's driver requests for them.

A worker on a cluster has no ticket, and the token file that it was started with expires. So each job carries
tokens of the driver. They are issued to the driver's user, who may also renew them: :mod:`.token_renewal`
does so as long as the driver has a ticket or a keytab. So a job may take as long as a token can live at most:
a week (``dfs.namenode.delegation.token.max-lifetime``). One that is not renewed lives for a day.

This module and :mod:`.token_renewal` are the only ones that call Hadoop in the driver's JVM.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from mutation_api.errors import WorkerError
from mutation_api.spark.jvm import hadoop_configuration, jvm_of
from mutation_api.spark.token_renewal import TokenKeeper, ticket_cache, with_ticket
from mutation_api.storage.connect import settings, token_issuers
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs.token_file import HDFS_KIND, private_file
from mutation_api.storage.keytab_login import has_keytab, log_in_as_spark
from mutation_api.storage.location import Location

__all__ = ["worker_settings"]

logger = logging.getLogger(__name__)

_KINDS = (HDFS_KIND, "kms-dt")
"""The kinds of tokens that storage needs. Other secrets stay in the driver."""

_PY4J_LOGGERS = ("py4j.java_gateway", "py4j.clientserver")

_keeper = TokenKeeper()


def worker_settings(context: SparkContext, locations: Iterable[Location]) -> HadoopSettings:
    """The storage settings for a job's tasks, with tokens for the file systems of these locations.

    Jobs of one driver share their tokens, until half of the time is over that these can live.

    Raises:
        WorkerError: a file system issues no token.
        OSError: see :func:`mutation_api.storage.connect.settings`.
    """
    _keep_traffic_out_of_logs()
    log_in_as_spark()
    issuers = token_issuers(locations)
    if not issuers:
        return settings()
    kept = _keeper.tokens(context, issuers)
    if kept is not None:
        return settings().with_tokens(kept)
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
    issued = False
    if user.hasKerberosCredentials():
        for issuer in issuers:
            issued |= _add_new_token(jvm, hadoop_configuration(context), issuer, user, found)
    found.mergeAll(user.getCredentials())  # does not overwrite the new ones
    taken = security.Credentials()
    for token in found.getAllTokens().toArray():
        if token.getKind().toString() in _KINDS:
            taken.addToken(token.getService(), token)
    if not taken.numberOfTokens():
        return None
    written = _written(jvm, taken)
    if issued:
        _keeper.keep(context, issuers, written, found)
    return written


def _add_new_token(jvm: Any, configuration: Any, issuer: str, user: Any, found: Any) -> bool:
    """Request a token for the user from a file system; returns whether it is one that the user may renew.

    A file system issues tokens to Kerberos logins only, and Spark's own user has tokens that would be used
    instead. So a ticket is used separately; of Spark's keytab, if it has one. A user with a keytab that this
    process could not use has the tokens that Spark renews, or none yet.
    """
    cache = ticket_cache()
    if cache is not None and (has_keytab() or not user.isFromKeytab()):
        with with_ticket(jvm, configuration, issuer, cache) as files:
            files.addDelegationTokens(user.getShortUserName(), found)
        return True
    files = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(issuer), configuration)
    service = files.getCanonicalServiceName()
    if user.getCredentials().getToken(jvm.org.apache.hadoop.io.Text(service)) is None:
        files.addDelegationTokens(user.getShortUserName(), found)
    return False


def _written(jvm: Any, credentials: Any) -> bytes:
    """The credentials in Hadoop's file format. They pass through a file, because py4j logs its answers."""
    with private_file() as path:
        stream = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(str(path)))
        credentials.writeTokenStorageToStream(stream)
        stream.close()
        return path.read_bytes()
