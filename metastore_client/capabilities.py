"""Server differences as named questions; probed, never read out of a version text."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Capabilities"]


@dataclass(frozen=True)
class Capabilities:
    """Answers for one server.

    ``version`` is what the server calls itself (2.3 and 3.1 both say "3.0") and is for messages only.
    """

    version: str
    has_write_ids: bool
    """Ids in files are per-table write ids (3.0 and later); otherwise transaction ids (2.x)."""
