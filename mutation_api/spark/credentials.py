"""Credentials for storage that the driver requests for its workers and renews.

A worker on a cluster has no ticket, and the token file that it was started with expires. So each job carries
delegation tokens of the driver. They are issued to the driver's user, who may also renew them, as long as the
driver has a ticket or a keytab. A job may therefore take as long as a token's maximum lifetime: a week
(``dfs.namenode.delegation.token.max-lifetime``). A token that is not renewed lives for a day. All jobs of a
driver share one set of tokens.

A NameNode renews a token for the user to whom it was issued, if this user logs in by Kerberos. The token
itself stays the same, so workers are not affected. Only HDFS tokens are renewed. Others (those of a KMS) live
only for the time for which they were issued.

Only this module calls Hadoop in the driver's JVM.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from mutation_api.errors import ConfigurationError, WorkerError
from mutation_api.spark.jvm import hadoop_configuration, jvm_of
from mutation_api.storage.connect import settings, token_issuers
from mutation_api.storage.hadoop_settings import (
    HDFS_KIND,
    TICKETS,
    HadoopSettings,
    fresh_ticket_cache,
    has_keytab,
    last_seconds,
    log_in_as_spark,
    private_file,
)
from mutation_api.storage.location import Location

logger = logging.getLogger(__name__)

_PAUSE_SECONDS_MIN = 1.0
_FILE_SYSTEM_OF_SERVICE = "ha-hdfs:"


def ticket_cache() -> Path | None:
    """Return this process's ticket file, where Java searches for it, or None if there is none."""
    found = fresh_ticket_cache()
    if found is None:
        name = os.environ.get(TICKETS) or f"/tmp/krb5cc_{os.getuid()}"
        found = Path(name.removeprefix("FILE:"))
    return found if found.is_file() else None


@contextlib.contextmanager
def with_ticket(jvm: Any, configuration: Any, issuer: str, cache: Path) -> Iterator[Any]:
    """Yield a file system whose login uses the tickets in a file instead of Spark's own user."""
    apart = jvm.org.apache.hadoop.conf.Configuration(configuration)
    apart.set("hadoop.security.kerberos.ticket.cache.path", str(cache))
    files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI(issuer), apart, None)
    try:
        yield files
    finally:
        files.close()


class TokenKeeper:
    """The tokens that were issued to a driver, by issuers. A thread renews them while the driver runs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[tuple[str, ...], _Kept] = {}

    def tokens(self, context: SparkContext, issuers: Sequence[str]) -> bytes | None:
        """Return tokens of these issuers that remain valid for a long time. None if new ones are needed."""
        with self._guard:
            kept = self._kept.get(tuple(issuers))
        return kept.tokens if kept is not None and kept.is_good_for(context) else None

    def keep(self, context: SparkContext, issuers: Sequence[str], tokens: bytes, credentials: Any) -> None:
        """Keep and renew new tokens, given in Hadoop's file format and as Hadoop's Credentials."""
        kept = _Kept(context, tokens, credentials)
        if kept.start():
            with self._guard:
                self._kept[tuple(issuers)] = kept


class _Kept:
    """Tokens issued at one time, which are renewed until their maximum lifetime ends.

    New jobs get them only until half of it has passed: from then on, new tokens would live longer.
    """

    def __init__(self, context: SparkContext, tokens: bytes, credentials: Any) -> None:
        self.tokens = tokens
        self._context = context
        self._credentials = credentials
        self._issued = time.time()
        self._last = last_seconds(tokens) or self._issued
        self._valid_until = self._issued  # until the first renewal returns the real time

    def is_good_for(self, context: SparkContext) -> bool:
        now = time.time()
        half = self._issued + (self._last - self._issued) / 2  # from then on, new tokens would live longer
        return context is self._context and now < half and now < self._valid_until

    def start(self) -> bool:
        """Renew the tokens once to find out how long they are valid, then continue in a thread.

        Return False if that fails.
        """
        if not self._renew():
            return False
        threading.Thread(target=self._go_on, name="hive-mutation-tokens", daemon=True).start()
        return True

    def _go_on(self) -> None:
        """Renew when half of the remaining time has passed, even after a failure, until no time is left."""
        while self._is_running() and time.time() < self._valid_until < self._last:
            time.sleep(max(_PAUSE_SECONDS_MIN, (self._valid_until - time.time()) / 2))
            if self._is_running():
                self._renew()

    def _is_running(self) -> bool:
        return SparkContext._active_spark_context is self._context

    def _renew(self) -> bool:
        try:
            self._valid_until = self._renewed()
        except (Py4JError, ConfigurationError, OSError) as error:
            if self._is_running():
                reason = str(getattr(error, "java_exception", None) or error).splitlines()[0]
                logger.warning(
                    "could not renew the delegation tokens of the workers: %s. They expire at %s. The driver "
                    "needs a valid ticket or keytab (see klist, spark.kerberos.keytab)",
                    reason,
                    self._said_end(),
                )
            return False
        return True

    def _said_end(self) -> str:
        if self._valid_until <= self._issued:
            return "dfs.namenode.delegation.token.renew-interval after their issue"
        return datetime.datetime.fromtimestamp(self._valid_until, datetime.UTC).isoformat(timespec="seconds")

    def _renewed(self) -> float:
        """Renew the tokens and return the time until which they are valid, in seconds since 1970."""
        cache = ticket_cache()
        if cache is None:
            raise ConfigurationError("the ticket no longer exists")
        jvm = jvm_of(self._context)
        ends = [
            self._renewed_token(jvm, token, cache)
            for token in self._credentials.getAllTokens().toArray()
            if token.getKind().toString() == HDFS_KIND
        ]
        return min(ends, default=self._last)

    def _renewed_token(self, jvm: Any, token: Any, cache: Path) -> float:
        service = str(token.getService().toString())
        issuer = f"hdfs://{service.removeprefix(_FILE_SYSTEM_OF_SERVICE)}/"
        with with_ticket(jvm, hadoop_configuration(self._context), issuer, cache) as files:
            return float(files.getClient().getNamenode().renewDelegationToken(token)) / 1000


_KINDS = (HDFS_KIND, "kms-dt")
"""The kinds of tokens that storage requires. Other secrets stay in the driver."""

_PY4J_LOGGERS = ("py4j.java_gateway", "py4j.clientserver")

_keeper = TokenKeeper()


def worker_settings(context: SparkContext, locations: Iterable[Location]) -> HadoopSettings:
    """Return the storage settings for a job's tasks, with tokens for the file systems of these locations.

    The jobs of a driver share their tokens until half of the tokens' maximum lifetime has passed.

    Raises:
        WorkerError: If a file system does not issue a token.
        OSError: See :func:`mutation_api.storage.connect.settings`.
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
            f"could not obtain delegation tokens for the workers from {', '.join(issuers)}: {reason}. The "
            "user of Spark's driver needs a valid ticket or keytab (see klist, spark.kerberos.keytab)"
        ) from None
    if tokens is None:
        logger.warning(
            "Spark's driver has neither a ticket nor tokens for %s, so its workers need their own tickets. "
            "Is "
            "hadoop.security.authentication set in the driver's HADOOP_CONF_DIR or in spark.hadoop.*?",
            ", ".join(issuers),
        )
        return settings()
    return settings().with_tokens(tokens)


def _keep_traffic_out_of_logs() -> None:
    """Filter py4j's logs: at DEBUG it logs everything sent to the JVM, including secrets in functions."""
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_above_debug)


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def _tokens(context: SparkContext, issuers: Sequence[str]) -> bytes | None:
    """Return new tokens of these file systems if the JVM may request them, and existing ones.

    Returns None if there are no tokens.
    """
    jvm = jvm_of(context)
    security = jvm.org.apache.hadoop.security
    user = security.UserGroupInformation.getCurrentUser()
    found = security.Credentials()
    issued = False
    if user.hasKerberosCredentials():
        for issuer in issuers:
            issued |= _add_new_token(jvm, hadoop_configuration(context), issuer, user, found)
    found.mergeAll(user.getCredentials())  # does not overwrite the new tokens
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
    """Request a token for the user from a file system. Return True if the user may renew it.

    A file system issues tokens only to Kerberos logins, and the tokens of Spark's own user would be used
    instead of a login. A separate ticket is therefore used, from Spark's keytab if there is one. If the user
    has a keytab that this process could not use, the user has the tokens that Spark renews, or none yet.
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
    """Return the credentials in Hadoop's file format, read from a file because py4j logs its answers."""
    with private_file() as path:
        stream = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(str(path)))
        credentials.writeTokenStorageToStream(stream)
        stream.close()
        return path.read_bytes()
