"""Missing permissions: checked once for each partition, and reported before files are published."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from mutation_api.errors import DeltaWriteError
from mutation_api.storage.location import Location
from mutation_api.storage.tree import Background
from mutation_api.write import staged_writer
from mutation_api.write.staged_writer import WritePermissions

FREE, CLOSED, GONE = (Location.parse(f"hdfs://nn/t/ds={name}") for name in ("free", "closed", "gone"))


@dataclass
class Knowing:
    """A storage that reports permissions."""

    threads: int = 2
    asked: list[Location] = field(default_factory=list)

    def refusal(self, directory: Location) -> PermissionError | None:
        """One directory may not be written, and the check of another fails."""
        self.asked.append(directory)
        if directory == GONE:
            raise OSError("the NameNode is gone")
        return PermissionError("write is not allowed") if directory == CLOSED else None


def test_each_partition_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its number of groups."""
    storage, background = Knowing(), Background()
    monkeypatch.setattr(staged_writer, "storage_at", lambda _: storage)
    permissions = WritePermissions("db.t", background)
    for _ in range(3):
        permissions.ask(FREE)
    background.finish()
    assert storage.asked == [FREE]


@pytest.mark.parametrize(
    ("location", "message"), [(CLOSED, "write is not allowed"), (GONE, "the NameNode is gone")]
)
def test_a_refusal_is_raised_at_the_end(
    monkeypatch: pytest.MonkeyPatch, location: Location, message: str
) -> None:
    """By the next call of the background; the error names table, directory and cause."""
    background = Background()
    monkeypatch.setattr(staged_writer, "storage_at", lambda _: Knowing())
    WritePermissions("db.t", background).ask(location)
    with pytest.raises(DeltaWriteError, match=rf"table db\.t: {location} cannot be written to: {message}"):
        background.finish()


def test_other_storages_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would have to write to find out."""
    background = Background()
    monkeypatch.setattr(staged_writer, "storage_at", lambda _: object())
    WritePermissions("db.t", background).ask(FREE)
    background.finish()
