"""What keeps a server's compactor from compacting a table. Pure.

The compactor of Hive 2.3 hands the table's properties to its job as text; an empty value comes back as null,
and every compaction of the table fails (``java.io.IOException: Major``). Seen on 2.3.10.
"""

from __future__ import annotations

from collections.abc import Mapping

from metastore_client.capabilities import Capabilities

__all__ = ["compactor_trouble"]


def compactor_trouble(parameters: Mapping[str, str], capabilities: Capabilities) -> str | None:
    """Why the server's compactor will fail on a table with these properties, and what to do; None if not."""
    empty = sorted(name for name, value in parameters.items() if not value)
    if capabilities.has_write_ids or not empty:
        return None
    names = ", ".join(f"'{name}'" for name in empty)
    return (
        f"the compactor of {capabilities.line} fails on tables with an empty property, and {names} is empty: "
        f"remove it, ALTER TABLE … UNSET TBLPROPERTIES ({names})"
    )
