"""Arrow arrays in their simplest form (one chunk, no encoding, offsets from 0), and repeated names. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.hive_type import UnfitTypeError

_EXTENSION_KEY = b"ARROW:extension:name"
_REFUSED = "refused: "
"""The text before the reason in the type of :func:`refused_type`."""


def plain_array(array: pa.Array | pa.ChunkedArray, metadata: Mapping[bytes, bytes] | None = None) -> pa.Array:
    """Return the same values as one array without special encodings, which most of Arrow's functions accept.

    ==========================================  =====================================
    given, at any depth                         result
    ==========================================  =====================================
    dictionary, run-end encoded                 the values
    string_view, binary_view                    large_string, large_binary
    list_view, large_list_view                  large_list
    decimal32, decimal64                        decimal128 with the same digits
    halffloat                                   float
    extension type ``arrow.json``               its string
    extension type ``arrow.uuid``               string, ``f81d4fae-7dec-11d0-a765-00a0c91e6bf6``
    extension type ``arrow.bool8``              bool
    any other extension type                    refused: its storage does not represent its value
    ==========================================  =====================================

    Args:
        array: n values.
        metadata: metadata of their field. A type that is not registered here arrives as its storage, and only
            the metadata contain its name.

    Returns:
        n values. It is the same array if no change is needed.

    Raises:
        UnfitTypeError: If a type is refused. The message contains the type, and ``path`` leads to it.

    Source: Arrow's columnar format and its canonical extension types.
    """
    if isinstance(array, pa.ChunkedArray):
        chunks = [plain_array(chunk, metadata) for chunk in array.chunks]
        return pa.concat_arrays(chunks) if chunks else plain_array(pa.nulls(0, array.type), metadata)
    if _is_plain(array.type, metadata):
        return array
    name = _extension_name(array.type, metadata)
    if name is None:
        return _plain_encoded(array)
    meaning = _MEANINGS.get(name)
    if meaning is None:
        raise UnfitTypeError(_reason(array.type, name))
    return meaning(array.storage if isinstance(array, pa.ExtensionArray) else array)


def refused_type(shown: str, reason: str) -> pa.DataType:
    """Return a placeholder type that :func:`plain_array` refuses.

    It stands for an Arrow type whose values must be refused, for example in a column that is not read.

    Args:
        shown: the type, for messages.
        reason: the reason why its values are refused. See :func:`refusal`.
    """
    return pa.opaque(pa.null(), shown, f"{_REFUSED}{reason}")


def refusal(arrow: pa.DataType) -> tuple[str, str] | None:
    """Return the arguments of :func:`refused_type`. Return None if the type is not one of its results."""
    is_refused = isinstance(arrow, pa.OpaqueType) and arrow.vendor_name.startswith(_REFUSED)
    return (arrow.type_name, arrow.vendor_name.removeprefix(_REFUSED)) if is_refused else None


def _is_plain(arrow: pa.DataType, metadata: Mapping[bytes, bytes] | None = None) -> bool:
    if _extension_name(arrow, metadata) is not None or any(is_kind(arrow) for is_kind in _ENCODED):
        return False
    if pa.types.is_map(arrow):
        return all(_is_plain(field.type, field.metadata) for field in (arrow.key_field, arrow.item_field))
    fields = (arrow.field(number) for number in range(arrow.num_fields))
    return all(_is_plain(field.type, field.metadata) for field in fields)


def _extension_name(arrow: pa.DataType, metadata: Mapping[bytes, bytes] | None) -> str | None:
    if isinstance(arrow, pa.BaseExtensionType):
        return str(arrow.extension_name)
    name = (metadata or {}).get(_EXTENSION_KEY)
    return None if name is None else name.decode(errors="replace")


def _reason(arrow: pa.DataType, name: str) -> str:
    refused = refusal(arrow)
    if refused is not None:
        return refused[1]
    shown = str(arrow) if isinstance(arrow, pa.BaseExtensionType) else f"extension<{name}>, stored as {arrow}"
    return (
        f"values of type {shown} have no Hive type, because their storage is not their value; "
        "convert them first, for example to strings or numbers"
    )


def _plain_encoded(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain_array(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), rows, side="right")
        return plain_array(array.values).take(pa.array(runs))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return array.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    if pa.types.is_map(kind):
        return _plain_map(array)
    if pa.types.is_struct(kind):
        return _plain_struct(array)
    return _plain_union(array) if pa.types.is_union(kind) else _plain_list(array)


def _plain_list(array: pa.Array) -> pa.Array:
    offsets, values = rebased_list(array)
    element = _plain_child(values, array.type.value_field, "element")
    return pa.LargeListArray.from_arrays(pa.array(offsets, mask=_list_mask(array)), element)


def _plain_map(array: pa.Array) -> pa.Array:
    # Convert the parts first, since Arrow cannot slice all encodings inside others.
    keys = _plain_child(array.keys, array.type.key_field, "key")
    items = _plain_child(array.items, array.type.item_field, "value")
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    bounds = pa.array(array.offsets.to_numpy())
    lists = pa.ListArray.from_arrays(bounds, entries, mask=array.is_null() if array.null_count else None)
    offsets, found = rebased_list(lists)
    return pa.MapArray.from_arrays(list_offsets(offsets, array), found.field(0), found.field(1))


def _plain_struct(array: pa.Array) -> pa.Array:
    if array.null_count and has_union(array.type):
        raise UnfitTypeError(f"NULL values of type {array.type} contain a union; make its fields NULL")
    fields = list(array.type)
    children = [
        _plain_child(array.field(number), field, f"field {field.name!r}")
        for number, field in enumerate(fields)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, names=[field.name for field in fields], mask=mask)


def _plain_union(array: pa.Array) -> pa.Array:
    tags, parts = union_parts(array)
    fields = [array.type.field(number) for number in range(array.type.num_fields)]
    plain = [
        _plain_child(part, field, f"alternative {tag}")
        for tag, (part, field) in enumerate(zip(parts, fields, strict=True))
    ]
    return dense_union(tags, plain, [field.name for field in fields])


def _plain_child(array: pa.Array, field: pa.Field, step: str) -> pa.Array:
    try:
        return plain_array(array, field.metadata)
    except UnfitTypeError as unfit:
        raise UnfitTypeError(unfit.reason, f", {step}{unfit.path}") from unfit


def rebased_list(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return the offsets (int64, n + 1, from 0) and the values of a list array of any layout.

    Null lists contain no values. Values to which no visible list refers (sliced away, or under a null) are
    dropped.
    """
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, array.flatten()


def map_parts(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Return the offsets (see :func:`rebased_list`), keys and values of a map array."""
    entry = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    offsets, entries = rebased_list(array.cast(pa.list_(entry)))
    keys, items = struct_fields(entries)
    return offsets, keys, items


def has_union(arrow: pa.DataType) -> bool:
    """Return True if a type is or contains a union."""
    return bool(pa.types.is_union(arrow)) or any(
        has_union(arrow.field(i).type) for i in range(arrow.num_fields)
    )


def has_timestamp(arrow: pa.DataType) -> bool:
    """Return True if a type is or contains a timestamp."""
    return bool(pa.types.is_timestamp(arrow)) or any(
        has_timestamp(arrow.field(i).type) for i in range(arrow.num_fields)
    )


def struct_fields(array: pa.Array) -> list[pa.Array]:
    """Return the fields of a struct array. Values under a null struct become null.

    Fields that are or contain unions keep such values, because pyarrow 26 aborts the process if it has to
    hide part of a union.
    """
    if not has_union(array.type):
        fields: list[pa.Array] = array.flatten()
        return fields
    return [
        array.field(i) if has_union(array.type.field(i).type) else pc.struct_field(array, [i])
        for i in range(array.type.num_fields)
    ]


def _list_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return a mask of n + 1 offsets, which is true for those of null lists.

    The result is None if no list is null.
    """
    if not array.null_count:
        return None
    return np.append(array.is_null().to_numpy(zero_copy_only=False), False)


def list_offsets(offsets: NDArray[np.int64], array: pa.Array) -> pa.Array:
    """Return offsets as ``ListArray.from_arrays`` expects them: null where ``array`` is null.

    Raises:
        pa.ArrowInvalid: If there are more than 2**31 - 1 values.
    """
    return pa.array(offsets, mask=_list_mask(array)).cast(pa.int32())


def offsets_of_lists(lists: Sequence[Sequence[object] | None]) -> pa.Array:
    """Return the offsets for building Arrow lists or maps from Python's.

    They are null where these are None.
    """
    ends = np.cumsum([0, *(len(each or ()) for each in lists)])
    return pa.array(ends, pa.int32(), mask=np.array([*(each is None for each in lists), False]))


Inner = Callable[[list[Any], list[int]], pa.Array]
"""A function that creates an array of nested values. Its arguments are the values and the row of each outer
value."""


def array_of_lists(lists: Sequence[Sequence[Any] | None], elements: Inner) -> pa.ListArray:
    """Return an array of Python lists. None is null."""
    flat = [(row, element) for row, each in enumerate(lists) for element in each or ()]
    values = elements([element for _, element in flat], [row for row, _ in flat])
    return pa.ListArray.from_arrays(offsets_of_lists(lists), values)


def array_of_structs(
    structs: Sequence[Sequence[Any] | None], names: Sequence[str], fields: Sequence[Inner]
) -> pa.StructArray:
    """Return an array of structs, whose values are in the order of the names. None is null."""
    rows = list(range(len(structs)))
    columns = [
        field([None if each is None else each[at] for each in structs], rows)
        for at, field in enumerate(fields)
    ]
    nulls = [each is None for each in structs]
    mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
    return pa.StructArray.from_arrays(columns, names=list(names), mask=mask)


def array_of_unions(pairs: Sequence[tuple[int, Any]], alternatives: Sequence[Inner]) -> pa.UnionArray:
    """Return an array of unions, given as (tag, value)."""
    parts = []
    for tag, alternative in enumerate(alternatives):
        rows = [row for row, (found, _) in enumerate(pairs) if found == tag]
        parts.append(alternative([pairs[row][1] for row in rows], rows))
    names = [f"_union_{tag}" for tag in range(len(parts))]
    return dense_union(np.array([tag for tag, _ in pairs], np.int8), parts, names)


def text_arrays(array: pa.Array) -> Iterator[pa.StringArray]:
    """Yield the array itself if it contains strings, and all string arrays nested in it, at any depth."""
    kind = array.type
    if pa.types.is_string(kind):
        yield array
    elif pa.types.is_list(kind):
        yield from text_arrays(array.values)
    elif pa.types.is_map(kind):
        yield from text_arrays(array.keys)
        yield from text_arrays(array.items)
    else:
        for i in range(kind.num_fields):
            yield from text_arrays(array.field(i))


def union_parts(array: pa.Array) -> tuple[NDArray[np.int8], list[pa.Array]]:
    """Return the tags (int8, position of the alternative) and the values of each alternative in row order."""
    start, stop = array.offset, array.offset + len(array)
    # pyarrow's type_codes and offsets ignore the slice, so the buffers are read.
    buffers = array.buffers()
    codes = np.frombuffer(buffers[1], np.int8)[start:stop] if len(array) else np.zeros(0, np.int8)
    tag_of_code = np.zeros(128, np.int8)
    for tag, code in enumerate(array.type.type_codes):
        tag_of_code[code] = tag
    tags = tag_of_code[codes]
    if array.type.mode == "dense":
        indices = np.frombuffer(buffers[2], np.int32)[start:stop] if len(array) else np.zeros(0, np.int32)
    else:
        indices = np.arange(len(array), dtype=np.int32)
    return tags, [
        array.field(tag).take(pa.array(indices[tags == tag])) for tag in range(array.type.num_fields)
    ]


def dense_union(tags: NDArray[np.int8], parts: list[pa.Array], names: list[str]) -> pa.UnionArray:
    """Build a union from its parts. This is the inverse of :func:`union_parts`.

    Args:
        tags: int8, shape (n,), position of the alternative of each row.
        parts: the values of each alternative in row order.
        names: names of the alternatives.
    """
    indices = np.zeros(len(tags), np.int32)
    for tag, part in enumerate(parts):
        indices[tags == tag] = np.arange(len(part))
    return pa.UnionArray.from_dense(pa.array(tags), pa.array(indices), parts, names)


def _uuid_texts(storage: pa.Array) -> pa.Array:
    """Return UUIDs of 16 bytes each as canonical strings (RFC 9562)."""
    if not len(storage):
        return pa.array([], pa.large_string())
    start = storage.offset * _UUID_BYTES
    content = np.frombuffer(storage.buffers()[1], np.uint8)[start : start + len(storage) * _UUID_BYTES]
    texts = np.full((len(storage), _UUID_CHARACTERS), ord("-"), np.uint8)
    texts[:, _UUID_DIGITS] = _HEX[content].reshape(len(storage), 2 * _UUID_BYTES)
    fixed = pa.Array.from_buffers(pa.binary(_UUID_CHARACTERS), len(storage), [None, pa.py_buffer(texts)])
    found = fixed.cast(pa.large_binary()).cast(pa.large_string())
    return pc.if_else(storage.is_valid(), found, None) if storage.null_count else found


def _truths(storage: pa.Array) -> pa.Array:
    return pc.not_equal(storage, 0)


_UUID_BYTES = 16
_UUID_CHARACTERS = 36
_UUID_DIGITS = [at for at in range(_UUID_CHARACTERS) if at not in (8, 13, 18, 23)]
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_ENCODED = (
    pa.types.is_dictionary,
    pa.types.is_run_end_encoded,
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_decimal32,
    pa.types.is_decimal64,
    pa.types.is_float16,
)
_MEANINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "arrow.bool8": _truths,
    "arrow.json": plain_array,
    "arrow.uuid": _uuid_texts,
}
"""The extension types whose values are those of a plain type. All others are refused."""


def repeated(names: Iterable[str], *, any_case: bool = False) -> list[str]:
    """Return the names that occur more than once, sorted and without duplicates.

    Args:
        names: any number of names.
        any_case: if True, names that differ only in case are the same, and all of them are returned.
    """
    counts = Counter(names)
    if not any_case:
        return sorted(name for name, count in counts.items() if count > 1)
    lowered: Counter[str] = Counter()
    for name, count in counts.items():
        lowered[name.lower()] += count
    return sorted(name for name in counts if lowered[name.lower()] > 1)
