"""Refuses partitions that do not exist and may not be created; one text for planning and commit. Pure."""

from __future__ import annotations

from collections.abc import Collection

from mutation_api.errors import PartitionCreationError, listed
from mutation_api.table.acid_table import AcidTable

__all__ = ["check_may_create"]


def check_may_create(table: AcidTable, missing: Collection[str]) -> None:
    """Raise PartitionCreationError if there are missing partitions, and the table may not get new ones."""
    if missing and not table.create_partitions:
        raise PartitionCreationError(
            f"table {table.full_name}: partitions {listed(sorted(missing))} do not exist; create them, or "
            "let this library create them: --create-partitions of a command, create_partitions=True of "
            "hive.transaction(…) or add_sink_table(…) in Python"
        )
