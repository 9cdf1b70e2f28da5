"""AttemptStaging: the hidden directories in which one attempt of a writer stages its files.

Names and marks are those of :mod:`mutation_api.commit.manifest`; the committer publishes what lies there, and
:mod:`mutation_api.commit.staging` removes what nobody publishes.
"""

from __future__ import annotations

from mutation_api.commit.manifest import attempt_mark, staging_directory
from mutation_api.errors import ConfigurationError, DeltaWriteError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["AttemptStaging"]


class AttemptStaging:
    """Makes the directories of an attempt when they are needed, and removes them.

    Args:
        table: bound to a transaction.
        writer_id: names the writer's directory.
        attempt_id: names the attempt's, below it.

    Raises:
        ConfigurationError: an id that cannot name a directory.
    """

    def __init__(self, table: AcidTable, writer_id: str, attempt_id: str) -> None:
        self.writer_id = _directory_name("writer_id", writer_id)
        self.attempt_id = _directory_name("attempt_id", attempt_id)
        self._table = table
        self._txn_id = table.required_txn_id()
        self._mark_name = attempt_mark(table.required_write_id())
        self._directories: set[Location] = set()

    def directory(self, partition_location: Location) -> Location:
        """Where files for a partition are staged: near it, so that publishing is a rename.

        Where they are not, because they are uploads, a mark says that this attempt has begun.

        Raises:
            DeltaWriteError: the directory could not be created.
        """
        root = self._table.location
        base = root if partition_location.is_within(root) else partition_location
        directory = staging_directory(base, self._txn_id) / self.writer_id / self.attempt_id
        if directory not in self._directories:
            try:
                storage = storage_at(directory)
                storage.create_directory(directory)
                self._directories.add(directory)
                if not storage.publishes_by_rename:
                    storage.create(directory / self._mark_name).close()
            except OSError as error:
                raise self._failed(directory, "created", error) from error
        return directory

    def check_marks(self) -> None:
        """Make sure that the transaction was not ended meanwhile.

        Whoever ends it removes the marks, and the uploads that are there by then. This attempt may be a loser
        that nobody waits for: what it uploads later it has to remove itself.

        Raises:
            DeltaWriteError: a mark is gone.
        """
        for directory in self._directories:
            storage = storage_at(directory)
            if not storage.publishes_by_rename and storage.stat(directory / self._mark_name) is None:
                raise DeltaWriteError(
                    f"table {self._table.full_name}, transaction {self._txn_id}: {directory} is gone, so the "
                    "transaction is over, and what this attempt wrote is part of nothing"
                )

    def delete(self, *, keeps_marks: bool) -> None:
        """Delete the directories.

        Args:
            keeps_marks: not where they hold marks: without its mark a sweep would not find what was uploaded
                and is there still.

        Raises:
            DeltaWriteError: one could not be deleted.
        """
        for directory in self._directories:
            storage = storage_at(directory)
            if keeps_marks and not storage.publishes_by_rename:
                continue
            try:
                storage.delete_directory(directory)
            except OSError as error:
                raise self._failed(directory, "deleted", error) from error

    def _failed(self, directory: Location, step: str, error: OSError) -> DeltaWriteError:
        return DeltaWriteError(f"table {self._table.full_name}: {directory} could not be {step}: {error}")


def _directory_name(what: str, value: str) -> str:
    if not value or "/" in value or value in (".", ".."):
        raise ConfigurationError(f"{what} {value!r} cannot name a directory")
    return value
