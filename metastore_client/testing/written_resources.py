"""The writes of a transaction as a server records them: tables, partitions and operations."""

from __future__ import annotations

from typing import NamedTuple

from metastore_client.capabilities import Capabilities
from metastore_client.errors import MetastoreError
from metastore_client.model import DataOperationType, LockComponent
from metastore_client.partition_name import check_name

OPERATION_LETTERS = {
    DataOperationType.SELECT: "s",
    DataOperationType.INSERT: "i",
    DataOperationType.UPDATE: "u",
    DataOperationType.DELETE: "d",
}


class Resource(NamedTuple):
    """The resource of a component: a table, or one partition of it."""

    database: str
    table: str | None
    partition: str | None

    def overlaps(self, other: Resource) -> bool:
        """Return True if both may touch the same rows.

        An unnamed table or partition stands for all of them.
        """
        return (
            self.database == other.database
            and (self.table is None or other.table is None or self.table == other.table)
            and (self.partition is None or other.partition is None or self.partition == other.partition)
        )

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class Written(NamedTuple):
    """A recorded component: the resource that a transaction writes, and the operation (one letter).

    ``is_placeholder`` is true if it stands for partitions that are not registered yet.
    """

    resource: Resource
    operation: str
    is_placeholder: bool = False


def resource_of(component: LockComponent) -> Resource:
    """Return the resource that a lock component names.

    Raises:
        InvalidRequestError: If the partition name is invalid.
    """
    if component.partition is not None:
        check_name(component.partition, f"{component.database}.{component.table}")
    table = None if component.table is None else component.table.lower()
    return Resource(component.database.lower(), table, component.partition)


def recorded(component: LockComponent, capabilities: Capabilities) -> Written | None:
    """Return what the server records for a lock component, for the conflict check and the compactor.

    4.x also records writes to partitions that are not known yet.
    """
    if not component.is_transactional or component.operation is DataOperationType.SELECT:
        return None
    if component.operation not in OPERATION_LETTERS:
        raise MetastoreError(f"unexpected operation {component.operation.name} in a lock request")
    written = Written(resource_of(component), OPERATION_LETTERS[component.operation])
    if component.is_dynamic_partition_write:
        return written._replace(is_placeholder=True) if capabilities.has_exclusive_write_lock else None
    return written
