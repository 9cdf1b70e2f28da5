"""What a conversion of values raises; its callers name table, column and row."""

from __future__ import annotations

__all__ = ["MisfitError", "UnfitTypeError"]


class MisfitError(Exception):
    """A value does not fit; becomes a RecordValueError. ``path`` leads to it inside a nested value."""

    def __init__(self, row: int, value: str, reason: str, path: str = "") -> None:
        super().__init__(row, value, reason, path)
        self.row = row
        self.value = value
        self.reason = reason
        self.path = path


class UnfitTypeError(Exception):
    """Values of a type can never be stored in the column; becomes a RecordLayoutError."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path
