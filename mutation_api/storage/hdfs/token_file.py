"""The file of delegation tokens that this process uses: that of its start, or one with shipped tokens.

``hdfs-native`` takes tokens only from the file that ``HADOOP_TOKEN_FILE_LOCATION`` names, and reads it at
each connection. Tokens that come with a task are kept in a file without a name, so that a killed worker
leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from metastore_client.delegation_token import DelegationToken, tokens_in
from metastore_client.errors import InvalidConfigurationError

__all__ = ["HDFS_KIND", "VARIABLE", "hdfs_tokens", "last_seconds", "private_file", "use_tokens"]

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
