"""The changes that the files of a table show, read without a feed."""

from __future__ import annotations

from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import EventFileKind
from mutation_api.read.change_plan import split_changes
from mutation_api.read.table_view import TableView


def changes_since_base(view: TableView, options: ReadOptions | None = None) -> list[str]:
    """Return id, kind, ROW__ID and values of each row that changed since the newest base, in any order."""
    files = [file for split in view.plan() for file in split.files]
    last = max((file.last for file in files if file.kind is EventFileKind.BASE), default=0)
    found = []
    for reader in split_changes(view, view.valid_ids.up_to(last), view.table.all_columns, options=options):
        for changed in reader.read():
            rows = zip(changed.ids.tolist(), changed.rows.to_pylist(), strict=True)
            found += [repr((id, changed.kind, row)) for id, row in rows]
    return found
