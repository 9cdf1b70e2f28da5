"""WrittenTables: which tables of a transaction have their change set, and what writers handed in for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

from mutation_api.commit.manifest import DeltaManifest
from mutation_api.errors import ManifestError, TransactionStateError

__all__ = ["WrittenTables"]


class WrittenTables:
    """What was written for the tables of one transaction; names are ``database.table``."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed: set[str] = set()
        self._writers: dict[str, set[str]] = {}
        self._manifests: dict[str, list[DeltaManifest]] = {}

    @contextlib.contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """The block in which a table gets its one change set; a block that raises does not count.

        Raises:
            TransactionStateError: the table already has its changes.
        """
        with self._mutex:
            if name in self._changed:
                raise TransactionStateError(
                    f"table {name} already has its changes in this transaction; "
                    "combine all of them in one DataFrame (unionByName) and apply it once"
                )
            self._changed.add(name)
        try:
            yield
        except BaseException:
            self._changed.discard(name)
            raise

    def add(self, name: str, txn_id: int, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Add what one writer has written to a table.

        Raises:
            ManifestError: manifests of this writer were added before.
        """
        writers = self._writers.setdefault(name, set())
        if writer_id in writers:
            raise ManifestError(
                f"table {name}, transaction {txn_id}: manifests of writer {writer_id!r} were added twice"
            )
        writers.add(writer_id)
        self._manifests.setdefault(name, []).extend(manifests)

    def writers(self, name: str) -> frozenset[str]:
        """Who handed in manifests for a table."""
        return frozenset(self._writers.get(name, ()))

    def manifests(self, name: str) -> tuple[DeltaManifest, ...]:
        """The manifests of a table."""
        return tuple(self._manifests.get(name, ()))

    @property
    def has_manifests(self) -> bool:
        """Whether anything was written to any table."""
        return any(self._manifests.values())
