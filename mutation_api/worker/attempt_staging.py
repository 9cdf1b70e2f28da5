"""AttemptStaging: the hidden directories in which one attempt of a writer stages its files.

:mod:`mutation_api.commit.manifest` defines the names and marks. The committer publishes the staged files;
:mod:`mutation_api.commit.staging` removes those that are never published.
"""

from __future__ import annotations

from mutation_api.commit.manifest import attempt_mark, staging_directory
from mutation_api.errors import ConfigurationError, DeltaWriteError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["AttemptStaging"]


class AttemptStaging:
    """Creates the directories of an attempt on demand, and removes them.

    Args:
        table: bound to a transaction.
        writer_id: name of the writer's directory.
        attempt_id: name of the attempt's directory, below the writer's.

    Raises:
        ConfigurationError: an id cannot be the name of a directory.
    """

    def __init__(self, table: AcidTable, writer_id: str, attempt_id: str) -> None:
        self.writer_id = _directory_name("writer_id", writer_id)
        self.attempt_id = _directory_name("attempt_id", attempt_id)
        self._table = table
        self._txn_id = table.required_txn_id()
        self._mark_name = attempt_mark(table.required_write_id())
        self._directories: set[Location] = set()

    def directory(self, partition_location: Location) -> Location:
        """Directory in which files of a partition are staged: near the partition, so publishing is a rename.

        If the storage stages files as uploads instead, a mark in the directory records that this attempt has
        begun.

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
        """Check that the transaction has not ended meanwhile.

        The process that ends a transaction removes the marks, and the uploads that exist by then. This
        attempt may be a duplicate whose result is not awaited, so it must remove its later uploads itself.

        Raises:
            DeltaWriteError: a mark is gone.
        """
        for directory in self._directories:
            storage = storage_at(directory)
            if not storage.publishes_by_rename and storage.stat(directory / self._mark_name) is None:
                raise DeltaWriteError(
                    f"table {self._table.full_name}, transaction {self._txn_id}: the mark of this attempt in "
                    f"{directory} is gone. The transaction has ended without the changes of this attempt"
                )

    def delete(self, *, keeps_marks: bool) -> None:
        """Delete the directories.

        Args:
            keeps_marks: keep directories that hold marks. A sweep needs the mark to find uploads that are
                left.

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
