"""Tables, writers and readers for the worker's tests."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from mutation_api.format.event import RecordIdentifier
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, WriterOptions
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.coordinator import MutatorCoordinator

TXN_ID = 7
DS = (("ds", "string"),)
versions = pytest.mark.parametrize("version", [v for v in AcidVersion if v.has_row_ids])
"""Layouts in which rows can be updated and deleted."""


def acid_table(location, version=AcidVersion.V1_LEGACY, *, columns=None, keys=(), **changes) -> AcidTable:
    """A bound table ``db.t (id bigint, msg string)``, 2 buckets by id; its write id is TXN_ID as well."""
    columns = columns or (("id", "bigint"), ("msg", "string"))
    own_id = TXN_ID if version.uses_write_ids else None
    settings = {
        "database": "db",
        "name": "t",
        "location": Location.given(location),
        "columns": tuple(AcidColumn(*column) for column in columns),
        "partition_keys": tuple(AcidColumn(*key) for key in keys),
        "num_buckets": 2,
        "bucket_columns": ("id",),
        "version": version,
        "txn_id": TXN_ID,
        "write_id": own_id,
    }
    return AcidTable(**{**settings, **changes})


def ids_of_bucket(table: AcidTable, bucket_id: int, count: int) -> list[int]:
    """The first ``count`` ids that belong to a bucket."""
    ids = np.arange(count * table.num_buckets * 4)
    buckets = BucketIdResolver(table).resolve(pa.record_batch({"id": ids})).to_numpy()
    return ids[buckets == bucket_id][:count].tolist()


def events(manifest: DeltaManifest) -> list[tuple]:
    """(operation, original_txn, bucket, row_id, current_txn, row values) of a staged file."""
    rows = orc.ORCFile(manifest.staged.location.path).read().to_pylist()
    return [(*list(row.values())[:5], row["row"] and tuple(row["row"].values())) for row in rows]


def coordinator(table: AcidTable, **settings) -> MutatorCoordinator:
    """A coordinator of writer ``w`` that checks each record at once."""
    return MutatorCoordinator(table, **{"options": WriterOptions(batch_rows=1), "writer_id": "w", **settings})


def row_id(txn: int, bucket: int, number: int) -> RecordIdentifier:
    """A ROW__ID."""
    return RecordIdentifier(txn, bucket, number)


def files_below(directory) -> list[str]:
    """Paths of all files, sorted."""
    return sorted(os.path.join(top, name) for top, _, names in os.walk(directory) for name in names)
