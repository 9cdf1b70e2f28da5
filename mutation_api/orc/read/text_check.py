"""Texts whose bytes are not UTF-8: Hive writes and shows them, and Arrow only seems to hold them.

pyarrow takes any bytes of a file as a string; what uses the string fails later, far from the file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mutation_api.types.plain_array import text_arrays

__all__ = ["NOT_UTF8", "first_not_utf8"]

NOT_UTF8 = "a text is not UTF-8; Hive reads it, and Arrow cannot hold it"


def first_not_utf8(names: Sequence[str], arrays: Sequence[pa.Array]) -> str | None:
    """Name of the first column with a text that is not UTF-8, at any depth; None if there is none.

    Fields of structs are named ``struct.field``.
    """
    for name, array in zip(names, arrays, strict=True):
        kind = array.type
        if pa.types.is_struct(kind):
            fields = [array.field(i) for i in range(kind.num_fields)]
            found = first_not_utf8([f"{name}.{field.name}" for field in kind], fields)
            if found is not None:
                return found
        elif not all(_is_ascii(texts) or _is_valid(texts) for texts in text_arrays(array)):
            return name
    return None


def _is_ascii(array: pa.StringArray) -> bool:
    """In a quarter of the time that Arrow takes; most texts are."""
    data = array.buffers()[2]
    return data is None or not data.size or bool(np.frombuffer(data, np.int8).min() >= 0)


def _is_valid(array: pa.StringArray) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
