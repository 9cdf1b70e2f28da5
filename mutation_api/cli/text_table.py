"""Rows in aligned columns under their names, as the commands print them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from mutation_api.types.printable import one_line

__all__ = ["text_table"]


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, sample: int | None = None
) -> Iterator[str]:
    """Lines of a table, the header first.

    Args:
        header: names of the columns.
        rows: a text for each column; what would make lines or move the cursor is escaped.
        sample: number of rows that decide the column widths; they are held in memory. None: all rows.
    """
    remaining = ([one_line(cell) for cell in cells] for cells in rows)
    measured = [header, *itertools.islice(remaining, sample)]
    widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
    for cells in itertools.chain(measured, remaining):
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
