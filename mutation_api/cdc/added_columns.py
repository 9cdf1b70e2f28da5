"""Add the columns that a source has, and its targets lack, to the targets before a run begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from metastore_client.client import MetastoreClient
from mutation_api.cdc.engine import AnySource
from mutation_api.cdc.mappings import FollowedTable
from mutation_api.cdc.source import DescribedSource, Position
from mutation_api.errors import ConfigurationError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name
from mutation_api.upkeep.alter_acid_table import alter_acid_table


def with_columns_added(
    metastore: MetastoreClient,
    followed: Sequence[FollowedTable],
    source: AnySource,
    after: Mapping[str, Position],
    *,
    dry_run: bool,
    user: str | None,
    lock_timeout_seconds: float,
    progress: Callable[[str], None],
) -> AnySource:
    """Add the source's new columns to the tables. In a dry run, return the source without these columns.

    Args:
        metastore: the metastore of the tables.
        followed: the tables.
        source: the source.
        after: the positions up to which tables were applied, by the source's names.
        dry_run: True to add nothing.
        user: the user name for the metastore. If None, the default user.
        lock_timeout_seconds: how long to wait for other users of a table.
        progress: called with one line for each table that is altered.

    Raises:
        ConfigurationError: If the source does not describe its columns.
        RecordLayoutError: If Hive has no type for a column.
        Others: See ``alter_acid_table``.
    """
    if not isinstance(source, DescribedSource):
        raise ConfigurationError(
            f"source {source.source_id}: schema='add' needs a source that describes the types of its "
            "columns, such as a MySqlSource or a DebeziumSource. Add columns with hive-mutate alter-table"
        )
    catalog = Catalog(metastore)
    targets = [each.target for table in followed for each in table.mappings]
    known = {name: catalog.read(TableSpec(*split_full_name(name), TableRole.SINK)).table for name in targets}
    found = source.new_columns([each.source_table(known) for each in followed], after)
    for name, target in ((table.name, each.target) for table in followed for each in table.mappings):
        altered = alter_acid_table(
            metastore,
            target,
            add=dict(found.get(name, {})),
            missing_only=True,
            dry_run=dry_run,
            user=user,
            lock_timeout_seconds=lock_timeout_seconds,
        )
        if altered.is_changed:
            progress(str(altered))
    new = [f"{name}.{column}" for name, columns in found.items() for column in columns]
    source = source.adding()
    return source.leaving_out(new) if dry_run and new else source
