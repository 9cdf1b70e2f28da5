"""What a test run says of itself at the end, gathered from all its worker processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class RunNotes:
    """Judges used, tests left out and what these claim, and skips that were not allowed."""

    judges: set[str] = field(default_factory=set)
    left_out: int = 0
    left_out_claims: dict[str, list[list[str]]] = field(default_factory=dict)
    """Test -> its claims of docs/compatibility.md, as ``feature_table.Outcome`` has them."""

    bad_skips: set[str] = field(default_factory=set)

    def to_plain(self) -> dict[str, Any]:
        """In values that a worker process can hand over."""
        return {
            "judges": sorted(self.judges),
            "left_out": self.left_out,
            "left_out_claims": self.left_out_claims,
            "bad_skips": sorted(self.bad_skips),
        }

    def add(self, plain: dict[str, Any]) -> None:
        """Add those of a worker; every worker collects, and leaves out, the same tests."""
        self.judges |= set(plain["judges"])
        self.left_out = max(self.left_out, plain["left_out"])
        self.left_out_claims |= plain["left_out_claims"]
        self.bad_skips |= set(plain["bad_skips"])


NOTES = pytest.StashKey[RunNotes]()
