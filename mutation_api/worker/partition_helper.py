"""Where a partition lies, and, if asked for, its creation from a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from metastore_client.errors import MetastoreError
from mutation_api.errors import PartitionCreationError
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name

__all__ = ["CreatingPartitionHelper", "PartitionHelper", "TablePartitionHelper"]


class PartitionHelper(Protocol):
    """Says where the files of a partition belong."""

    def location(self, partition_name: str) -> Location:
        """Location of the partition of this (escaped) name; '' names an unpartitioned table.

        Raises:
            PartitionCreationError: the partition is missing and may not, or could not, be created.
        """


class TablePartitionHelper:
    """Takes the location from the table's descriptor and talks to nobody.

    A partition that does not exist yet gets the place that Hive would give it; the driver creates it, or
    refuses the change set, before any file becomes visible.
    """

    def __init__(self, table: AcidTable) -> None:
        self._table = table

    def location(self, partition_name: str) -> Location:
        """See :class:`PartitionHelper`; never fails."""
        return self._table.partition_location(partition_name)


class CreatingPartitionHelper:
    """Creates each partition when it is first written to, through a function that is handed in.

    For a plain process that writes without a driver in front of it. With thousands of tasks leave creation to
    the driver: it asks the metastore once.

    Args:
        table: whose partitions; its ``create_partitions`` must be true.
        create: takes (partition name, unescaped value texts); creates the partition, or finds that it exists,
            and returns its location as the metastore spells it.
    """

    def __init__(self, table: AcidTable, create: Callable[[str, tuple[str, ...]], str]) -> None:
        self._table = table
        self._create = create
        self._locations: dict[str, Location] = {"": table.location}

    def location(self, partition_name: str) -> Location:
        """See :class:`PartitionHelper`; asks once for each name."""
        if partition_name not in self._locations:
            self._locations[partition_name] = self._created(partition_name)
        return self._locations[partition_name]

    def _created(self, partition_name: str) -> Location:
        if not self._table.create_partitions:
            raise PartitionCreationError(
                f"table {self._table.full_name}: partition {partition_name!r} may not be created; "
                "declare the table with create_partitions=True"
            )
        try:
            return Location.parse(self._create(partition_name, parse_partition_name(partition_name)))
        except (MetastoreError, OSError) as error:
            raise PartitionCreationError(
                f"table {self._table.full_name}: partition {partition_name!r} could not be created: {error}"
            ) from error
