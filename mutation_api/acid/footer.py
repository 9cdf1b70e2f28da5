"""Names of the entries that an ACID file has in the user metadata of its footer.

Source: Hive's OrcRecordUpdater (ACID_KEY_INDEX_NAME, OrcAcidUtils.ACID_STATS) and AcidUtils.OrcAcidVersion.
"""

from __future__ import annotations

__all__ = ["ACID_STATS", "ACID_VERSION", "KEY_INDEX"]

KEY_INDEX = "hive.acid.key.index"
"""``originalTransaction,bucket,rowId;`` of the last row of each stripe."""

ACID_STATS = "hive.acid.stats"
"""``inserts,updates,deletes`` of the file."""

ACID_VERSION = "hive.acid.version"
"""Written into files with write ids, as Hive does; its readers also accepted files without it."""
