"""A search for values in every file below a directory, written apart from the library's.

It reads all columns of all stripes by pyarrow's ORC reader, and looks for strings in the bytes of each file,
which finds them in tables without compression, including footers and indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc


def files_with(root: Path, values: Collection[object]) -> list[str]:
    """The files below a directory that hold one of the values, with where it was found."""
    texts = [value.encode() for value in values if isinstance(value, str)]
    found = []
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if any(text in content for text in texts):
            found.append(f"{path}: its bytes")
        if content[:3] == b"ORC":
            stored = set(leaves(path))
            if stored & set(values):
                found.append(f"{path}: its rows")
    return found


def leaves(path: Path) -> Iterator[object]:
    """All values of all columns in an ORC file, without its nulls."""
    file = pa.orc.ORCFile(str(path))
    for index in range(file.nstripes):
        for column in file.read_stripe(index).columns:
            yield from _values(column.to_pylist())


def _values(found: Any) -> Iterator[object]:
    match found:
        case None:
            return
        case dict():
            yield from _values(list(found.values()))
        case list():
            for each in found:
                yield from _values(each)
        case _:
            yield found
