"""The preview of a merge in this process; see :mod:`mutation_api.changes.preview`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.changes.local_merge.acting import KINDS, Acting, struct_of
from mutation_api.changes.local_merge.local_plan import LocalMergePlan
from mutation_api.changes.merge_options import CHANGE_COLUMN
from mutation_api.changes.preview import SHOWN_KINDS, Preview, SampleRow, foreign_locks, row_values
from mutation_api.local.forecast import forecast_arrow

__all__ = ["preview_rows"]


def preview_rows(plan: LocalMergePlan, samples: int, insert_files: int | None) -> Preview:
    """Forecast, locks of others and samples of a merge; nothing is written.

    Raises: as :func:`mutation_api.local.apply.apply_arrow` before it writes.
    """
    forecast = forecast_arrow(
        plan.transaction,
        plan.table.full_name,
        plan.changes(),
        operation_column=CHANGE_COLUMN,
        insert_files=insert_files,
        local=plan.local,
    )
    touched = {group.partition for group in forecast.groups}
    locks = foreign_locks(plan.transaction.other_locks(plan.table.full_name), touched) if touched else ()
    return Preview(forecast, locks, tuple(_samples(plan, samples)) if samples > 0 else ())


def _samples(plan: LocalMergePlan, per_kind: int) -> Iterator[SampleRow]:
    """Of each kind the rows with the least partition and key."""
    for kind in SHOWN_KINDS:
        code = KINDS.index(kind)
        found = [
            (partition, key, number, row)
            for number, each in enumerate(plan.acting)
            for partition, key, row in _named(plan, each, np.flatnonzero(each.kinds == code))
        ]
        for partition, key, number, row in heapq.nsmallest(per_kind, found):
            yield _sample(kind, partition, key, plan.acting[number].take(np.array([row])))


def _named(plan: LocalMergePlan, each: Acting, rows: NDArray[np.int64]) -> Iterator[tuple[str, str, int]]:
    """Partition, key and index of some rows."""
    if not len(rows):
        return
    chosen = each if len(rows) == len(each.kinds) else each.take(rows)
    old = chosen.rows.target or {}
    keys = {key: old[key] if key in old else chosen.new[key] for key in plan.keys}
    yield from zip(chosen.partitions.to_pylist(), json_texts(struct_of(keys)), rows.tolist(), strict=True)


def _sample(kind: str, partition: str, key: str, row: Acting) -> SampleRow:
    old = {name: values for name, values in (row.rows.target or {}).items() if name != ROW_ID_COLUMN}
    return SampleRow(kind, partition or None, key, _values(old), _values(row.new))


def _values(columns: Mapping[str, pa.Array]) -> dict[str, object] | None:
    if not columns:
        return None
    return row_values(struct_of(columns)[0])
