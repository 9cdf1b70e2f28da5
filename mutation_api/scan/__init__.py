"""Rows of a snapshot in plain Python, as Arrow batches: no Spark, no JVM.

:func:`open_table` gives the view that a transaction or an open snapshot has of a table.
:func:`open_directory` gives the view of a directory without a metastore. A :class:`TableScan` reads a view;
:func:`export_rows` writes its rows to a file::

    with client.open_snapshot("travel.airports") as snapshot:
        airports = TableScan(open_table(snapshot, "travel.airports"), columns=["icao", "name"]).to_arrow()
"""

from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.scan.directory import open_directory
from mutation_api.scan.export import export_rows
from mutation_api.scan.table_scan import TableScan
from mutation_api.scan.table_view import TableView, open_table

__all__ = [
    "TableScan",
    "TableView",
    "TimestampForm",
    "export_rows",
    "open_directory",
    "open_table",
]
