"""The capabilities of releases of Hive, as which an in-memory metastore can behave."""

from __future__ import annotations

from metastore_client.capabilities import Capabilities

__all__ = ["HIVE_2_3", "HIVE_3_1", "HIVE_4_1"]

HIVE_2_3 = Capabilities(version="3.0", has_write_ids=False)
"""The capabilities of a Hive 2.3 server."""
HIVE_3_1 = Capabilities(version="3.0", has_write_ids=True)
"""The capabilities of a Hive 3.1 server; it reports the same version as 2.3."""
HIVE_4_1 = Capabilities(
    version="4.1.0",
    has_write_ids=True,
    has_exclusive_write_lock=True,
    has_write_notifications=True,
    has_min_history=True,
)
"""The capabilities of a Hive 4.1 server."""
