"""Registered: what the metastore says of a table, and which of it Hive takes for true."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnStatistics, PartitionInfo, TableInfo
from metastore_client.valid_ids import ValidIdList, ValidWriteIdList
from mutation_api.types.hive_type import INTEGER_KINDS

__all__ = ["Registered"]

_ACCURATE = "COLUMN_STATS_ACCURATE"
_ANSWERED = {*INTEGER_KINDS, "float", "double", "date", "boolean", "string", "binary"}


@dataclass(frozen=True)
class Registered:
    """A table and its partitions as they were described after a snapshot was taken, and whom to ask for more.

    COLUMN_STATS_ACCURATE is a JSON object: ``BASIC_STATS`` is "true" if numRows is, ``COLUMN_STATS`` has the
    columns whose statistics are. Source: Hive's StatsSetupConst.
    """

    metastore: MetastoreClient
    info: TableInfo
    partitions: Sequence[PartitionInfo]

    def parameters(self, partition: str) -> Mapping[str, str]:
        """Those of a partition, or of the table if it has none; nothing if it is not known any more."""
        return self._parameters.get(partition, {})

    def claims_rows(self, partition: str) -> bool:
        """Whether Hive answers count(*) from numRows."""
        return str(self._claims(partition).get("BASIC_STATS", "")).lower() == "true"

    def claimed_columns(self, partition: str) -> tuple[str, ...]:
        """Data columns of which Hive answers min, max and count from their statistics, sorted."""
        claimed = self._claims(partition).get("COLUMN_STATS")
        if not isinstance(claimed, dict):
            return ()
        accurate = {name.lower() for name, is_true in claimed.items() if str(is_true).lower() == "true"}
        return tuple(sorted(accurate & {column.name for column in self.info.columns}))

    def answers_from(self, column: ColumnStatistics) -> bool:
        """Whether this Hive answers queries from the statistics of such a column, and does not only plan.

        Source: getType of Hive 4's StatsOptimizer; seen on 4.1.0 and 4.2.1. Older ones never do for
        transactional tables.
        """
        return self.metastore.capabilities().has_exclusive_write_lock and column.type in _ANSWERED

    def column_statistics(
        self, partitions: Sequence[str], columns: Sequence[str], valid_ids: ValidIdList
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """Recorded statistics by partition. Raises MetastoreError."""
        return self.metastore.get_column_statistics(
            self.info.database,
            self.info.name,
            partitions if self.info.partition_keys else None,
            columns,
            valid_write_ids=valid_ids if isinstance(valid_ids, ValidWriteIdList) else None,
        )

    @functools.cached_property
    def _parameters(self) -> dict[str, Mapping[str, str]]:
        if not self.info.partition_keys:
            return {"": self.info.parameters}
        return {each.name: each.parameters for each in self.partitions}

    def _claims(self, partition: str) -> Mapping[str, object]:
        try:
            claims = json.loads(self.parameters(partition).get(_ACCURATE, "{}"))
        except ValueError:
            return {}
        return claims if isinstance(claims, dict) else {}
