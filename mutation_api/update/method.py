"""Methods of capture: how changes of a table are noticed, and which kinds each of them sees. Pure."""

from __future__ import annotations

import enum

__all__ = ["CaptureMethod"]


class CaptureMethod(enum.Enum):
    """How changes are captured; the value is its name in options and properties."""

    CHANGELOG = "changelog"
    """Triggers log the keys of inserted, updated and deleted rows."""
    CHANGELOG_INSERT = "changelog-insert"
    """A trigger logs the keys of inserted rows; other changes are asserted not to happen."""
    ROW_VERSION = "row-version"
    """A growing column tells inserted and updated rows; deletes by a comparison of keys, when asked."""
    ROW_VERSION_INSERT = "row-version-insert"
    """A growing column tells inserted rows; other changes are asserted not to happen."""
    BINLOG = "binlog"
    """MySQL's and MariaDB's binary log."""

    @property
    def has_log(self) -> bool:
        """Whether the source has a log table and triggers of ours."""
        return self in (CaptureMethod.CHANGELOG, CaptureMethod.CHANGELOG_INSERT)

    @property
    def has_version(self) -> bool:
        """Whether it needs a growing column."""
        return self in (CaptureMethod.ROW_VERSION, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def is_insert_only(self) -> bool:
        """Whether it sees nothing but inserts."""
        return self in (CaptureMethod.CHANGELOG_INSERT, CaptureMethod.ROW_VERSION_INSERT)

    @property
    def sees(self) -> tuple[str, ...]:
        """The operations that it captures."""
        if self.is_insert_only:
            return ("insert",)
        if self is CaptureMethod.ROW_VERSION:
            return ("insert", "update")
        return ("insert", "update", "delete")
