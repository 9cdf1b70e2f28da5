"""AcidVersion: the only place that knows how the table formats differ."""

from __future__ import annotations

import enum

__all__ = ["AcidVersion"]


class AcidVersion(enum.Enum):
    """Layout of the events of a table.

    V1_LEGACY: Hive 2.x, property ``transactional_properties`` absent or ``legacy``: one delta per
    transaction, updates keep their ROW__ID. V1_SPLIT: Hive 2.x, ``default``: an update is a delete event plus
    an insert event.
    """

    V1_LEGACY = "v1-legacy"
    V1_SPLIT = "v1-split"

    @property
    def splits_updates(self) -> bool:
        """An update is written as a delete event (delete_delta) and an insert event (delta)."""
        return self is AcidVersion.V1_SPLIT

    @property
    def transaction_field(self) -> str:
        """Name of the first field of ROW__ID, in lower case as Hive prints it."""
        return "transactionid"
