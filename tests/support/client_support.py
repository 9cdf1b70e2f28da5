"""Tables in a metastore and staged files in them, for the tests of the driver side.

The committer never looks into a file, so the staged files here hold any bytes; tests in which Hive reads
what was committed use the real writer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, TableInfo
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.manifest import DeltaManifest, FileKind, staging_directory
from mutation_api.transaction.manifest_checks import relative_final_path

WRITER = "writer"
ATTEMPT = "0"


def table_info(
    name: str = "t", *, partitioned: bool = True, location: str = "", **changes: object
) -> TableInfo:
    """A mutable table ``default.<name>(id int, msg string)``, partitioned by ds (string) and hr (int)."""
    keys = (ColumnInfo("ds", "string"), ColumnInfo("hr", "int")) if partitioned else ()
    info = TableInfo(
        database="default",
        name=name,
        columns=(ColumnInfo("id", "int"), ColumnInfo("msg", "string")),
        partition_keys=keys,
        location=location,
        num_buckets=2,
        bucket_columns=("id",),
        parameters={"transactional": "true"},
    )
    return dataclasses.replace(info, **changes)  # type: ignore[arg-type]


def builder(
    metastore: MetastoreClient, clock: object, *sinks: str, **options: object
) -> MutatorClientBuilder:
    """A builder with sink tables of the default database."""
    result = MutatorClientBuilder().metastore(metastore).lock_timeout_seconds(60)
    if clock is not None:
        result = result.clock(clock)  # type: ignore[arg-type]
    for sink in sinks:
        result = result.add_sink_table("default", sink, **options)  # type: ignore[arg-type]
    return result


def stage(
    table: AcidTable,
    partition_name: str = "",
    bucket_id: int = 0,
    *,
    kind: FileKind = FileKind.DELTA,
    inserts: int = 1,
    updates: int = 0,
    deletes: int = 0,
    writer_id: str = WRITER,
    attempt_id: str = ATTEMPT,
    content: bytes = b"not really ORC",
) -> DeltaManifest:
    """Write a staged file as a coordinator would, and return its manifest."""
    txn_id = table.required_txn_id()
    directory = staging_directory(table.location, txn_id) / writer_id / attempt_id
    folder = Path(directory.path)
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / f"{len(list(folder.iterdir()))}_{kind.value}_bucket_{bucket_id:05d}"
    staged.write_bytes(content)
    manifest = DeltaManifest(
        database=table.database,
        table=table.name,
        txn_id=txn_id,
        write_id=table.required_write_id(),
        partition_name=partition_name,
        partition_values=parse_partition_name(partition_name),
        bucket_id=bucket_id,
        kind=kind,
        writer_id=writer_id,
        attempt_id=attempt_id,
        staged=Staged(Location.given(staged)),
        target=table.location,
        insert_count=inserts,
        update_count=updates,
        delete_count=deletes,
        row_count=inserts + updates + deletes,
        byte_count=len(content),
        stripe_count=1,
        tail_crc32=0,
    )
    final = table.partition_location(partition_name) / relative_final_path(manifest, table.version)
    return dataclasses.replace(manifest, target=final)


def files_below(root: Location | Path, *, hidden: bool = False) -> list[str]:
    """Relative paths of all files below a directory; those under hidden names only if asked for."""
    base = Path(root.path) if isinstance(root, Location) else root
    found = (p.relative_to(base) for p in base.rglob("*") if p.is_file())
    return sorted(str(p) for p in found if hidden or not _is_hidden(p.parts))


def _is_hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(("_", ".")) for part in parts)
