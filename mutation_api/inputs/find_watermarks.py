"""find_watermarks: the positions up to which sources have been applied, read outside of their runs."""

from __future__ import annotations

from metastore_client.client import MetastoreClient
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.inputs.watermark import Watermark, Watermarks, watermark_table_exists

__all__ = ["find_watermarks", "read_watermarks"]


def find_watermarks(
    metastore: MetastoreClient,
    watermark_table: str,
    *,
    target: str | None = None,
    source_id: str | None = None,
) -> list[Watermark]:
    """Read watermarks in a snapshot, whose lock is released afterwards.

    Args:
        metastore: where the tables are; stays open.
        watermark_table: ``database.table``; nothing is found if it does not exist.
        target: only those of this table, ``database.table`` in any case; None for all.
        source_id: only those of this source; None for all.

    Returns:
        Sorted by source, its table, and target.

    Raises:
        ConfigurationError: a name is not ``database.table``, or ``watermark_table`` is not a table of
            watermarks.
        Others: as :meth:`Watermarks.read` and ``MutatorClient.open_snapshot``.
    """
    read = read_watermarks(metastore, watermark_table)
    return [] if read is None else read.of(target=target, source_id=source_id)


def read_watermarks(metastore: MetastoreClient, watermark_table: str) -> Watermarks | None:
    """All watermarks in a snapshot, whose lock is released afterwards; None if there is no such table.

    Raises: as :func:`find_watermarks`.
    """
    if not watermark_table_exists(metastore, watermark_table):
        return None
    with (
        MutatorClientBuilder().metastore(metastore).build() as client,
        client.open_snapshot(watermark_table) as snapshot,
    ):
        return Watermarks.read(snapshot, watermark_table)
