"""The parts of an Arrow expression: the columns that it names, and its literals.

Arrow shows the parts of an expression only in the form in which it pickles one: an IPC file with one row. The
schema's metadata list the parts in order: ``field_ref``, ``nested_field_ref`` followed by as many
``field_ref``, ``literal`` and ``options`` with the number of the column that holds them, ``call``, ``end``.

Source: Serialize in Arrow's compute/expression.cc; ArrowSchema of Arrow's C data interface, which provides
all metadata, while ``Schema.metadata`` provides only the last value of each key.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import reduce
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T")
Path = tuple[str, ...]
"""The name of a column, or, for a field of a struct column, both names."""

_FIELD, _NESTED, _LITERAL, _OPTIONS = b"field_ref", b"nested_field_ref", b"literal", b"options"
_DIGITS = 76
"""The maximum number of digits of Arrow's decimals."""
_EXACT = Context(prec=_DIGITS)
_SMALL_INTEGERS = (pa.int8(), pa.int16(), pa.int32())


class _ArrowSchema(ctypes.Structure):
    """The first fields of the C structure ArrowSchema."""

    _fields_ = (("format", ctypes.c_void_p), ("name", ctypes.c_void_p), ("metadata", ctypes.c_void_p))


def named_paths(expression: pc.Expression) -> frozenset[Path]:
    """Return the columns and fields that an expression names, whether they exist or not.

    Raises:
        pa.ArrowNotImplementedError: If it refers to one by its number, or contains a value that Arrow cannot
            pickle.
    """
    parts = iter(_metadata(_pickled(expression).schema))
    paths = set()
    for key, value in parts:
        if key == _NESTED:
            names = [next(parts)[1] for _ in range(int(value))]
            paths.add(tuple(name.decode() for name in names))
        elif key == _FIELD:
            paths.add((value.decode(),))
    return frozenset(paths)


def fields_of(expression: pc.Expression, column: str) -> pc.Expression:
    """Return the expression over the fields of a struct column instead of columns of the same names.

    Raises:
        pa.ArrowNotImplementedError: See :func:`named_paths`.
    """
    return _with_paths(expression, lambda path: (column.encode(), *path))


def columns_of(expression: pc.Expression) -> pc.Expression:
    """Return the expression over columns instead of the fields of a struct column: reverses `fields_of`.

    Raises:
        pa.ArrowNotImplementedError: See :func:`named_paths`.
    """
    return _with_paths(expression, lambda path: path[1:])


def _with_paths(
    expression: pc.Expression, changed: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]
) -> pc.Expression:
    pickled = _pickled(expression)
    parts, moved = iter(_metadata(pickled.schema)), list[tuple[bytes, bytes]]()
    for key, value in parts:
        if key in (_FIELD, _NESTED):
            old = (value,) if key == _FIELD else tuple(next(parts)[1] for _ in range(int(value)))
            path = changed(old)
            moved += [(_NESTED, str(len(path)).encode())] if len(path) > 1 else []
            moved += [(_FIELD, name) for name in path]
        else:
            moved.append((key, value))
    return _unpickled(expression, pickled.replace_schema_metadata(pa.KeyValueMetadata(moved)))


def folded(
    expression: pc.Expression,
    of_field: Callable[[Path], T],
    of_literal: Callable[[pa.Array], T],
    of_call: Callable[[str, Sequence[T], pa.Array | None], T],
) -> T:
    """Evaluate an expression by its parts, from the innermost outwards, at any depth.

    Args:
        expression: any expression.
        of_field: returns the result for a column.
        of_literal: returns the result for a literal, which is passed as an array of one value.
        of_call: returns the result for a function, from its name, the results of its arguments and the values
            of a set.

    Raises:
        pa.ArrowNotImplementedError: See :func:`named_paths`.
    """
    pickled = _pickled(expression)
    entries = iter(_metadata(pickled.schema))
    calls: list[tuple[str, list[T]]] = [("", [])]
    sets: list[pa.Array | None] = [None]
    for key, value in entries:
        found = calls[-1][1]
        if key == _NESTED:
            found.append(of_field(tuple(next(entries)[1].decode() for _ in range(int(value)))))
        elif key == _FIELD:
            found.append(of_field((value.decode(),)))
        elif key == _LITERAL:
            found.append(of_literal(pickled.column(int(value))))
        elif key == _OPTIONS:
            options = pickled.column(int(value))
            if options.type.get_field_index("value_set") >= 0:
                sets[-1] = options.field("value_set").flatten()
        elif key == b"end":
            name, arguments = calls.pop()
            calls[-1][1].append(of_call(name, arguments, sets.pop()))
        else:
            calls.append((value.decode(), []))
            sets.append(None)
    return calls[0][1][0]


COMPARISONS = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
"""The comparisons of :func:`required`, each with that of the same values in the other order."""


EQUAL = ("equal", "is_in")
"""The comparisons of :func:`required` that have all values that a column may have."""


@dataclass(frozen=True)
class Required:
    """Comparisons that are true in each row that meets a condition.

    Attributes:
        comparisons: comparisons joined by AND: column, one of COMPARISONS or ``is_in``, and the constant (one
            value) or the set. They have no nulls.
        is_all: True if they are the whole condition. False if other parts were left out.
    """

    comparisons: list[tuple[str, str, pa.Array]]
    is_all: bool


def required(expression: pc.Expression) -> Required:
    """Return comparisons that are all true in every row that meets a condition.

    Raises:
        pa.ArrowNotImplementedError: See :func:`named_paths`.
    """

    def of_call(name: str, arguments: Sequence[Any], values: pa.Array | None) -> Any:
        if name in ("and_kleene", "and"):
            found = [each for each in arguments if isinstance(each, Required)]
            is_all = len(found) == len(arguments) and all(each.is_all for each in found)
            return Required([one for each in found for one in each.comparisons], is_all)
        if name in ("or_kleene", "or"):
            return _one_of(arguments)
        if name == "cast" and isinstance(arguments[0], pa.Array) and pa.types.is_integer(arguments[0].type):
            return arguments[0]  # of another width; only integers are compared with it
        if name in COMPARISONS:
            left, right = arguments
            if isinstance(left, pa.Array):
                left, right, name = right, left, COMPARISONS[name]
            arguments, values = [left], right if isinstance(right, pa.Array) else None
        elif name != "is_in":
            return None
        is_column = isinstance(arguments[0], tuple) and len(arguments[0]) == 1
        if not is_column or values is None or values.null_count:
            return None
        return Required([(arguments[0][0], name, values)], is_all=True)

    found = folded(expression, lambda path: path, lambda literal: literal, of_call)
    return found if isinstance(found, Required) else Required([], is_all=False)


def _one_of(parts: Sequence[Any]) -> Required | None:
    """Return the one comparison of a column with a set that several comparisons joined by OR amount to."""
    if any(not isinstance(each, Required) or not each.is_all or len(each.comparisons) != 1 for each in parts):
        return None
    found = [each.comparisons[0] for each in parts]
    sets = {(name, values.type) for name, _, values in found}
    if len(sets) != 1 or any(kind not in EQUAL for _, kind, _ in found):
        return None
    return Required([(found[0][0], "is_in", pa.concat_arrays([values for *_, values in found]))], is_all=True)


def expression_text(expression: pc.Expression) -> str:
    """Return the expression as a string for messages, with bytes that are not UTF-8 replaced.

    ``str()`` fails if there are such bytes.
    """
    try:
        return str(expression)
    except UnicodeDecodeError as error:
        return bytes(error.object).decode(errors="replace")


def has_fatal_literal(expression: pc.Expression) -> bool:
    """Return True if a literal is a NULL of type large_string or large_binary.

    pyarrow 26 ends the process on such a literal.

    Raises:
        pa.ArrowNotImplementedError, pa.ArrowInvalid: If it has a value that Arrow cannot pickle.
    """
    pickled = _pickled(expression)
    return any(
        pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        for column in pickled.columns
        if column.null_count
    )


def with_small_integers(expression: pc.Expression) -> pc.Expression:
    """Return an expression in which each whole number has the smallest type that holds it.

    Arrow determines the common type of a decimal and a literal as if the literal had that type, but casts it
    from its actual type, for which the common type is too narrow (observed up to pyarrow 26).
    """
    pickled = _pickled(expression)
    changes = {
        at: _small(pickled.column(at))
        for at in (int(value) for key, value in _metadata(pickled.schema) if key == _LITERAL)
    }
    return _rebuilt(expression, pickled, changes)


def with_typed_sets(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return an expression in which ``isin`` of a column finds exactly the rows that equal one of the values.

    Whole numbers and decimals get the column's type. Otherwise Arrow casts the values or the column, and
    fails for a value that the other type cannot hold, although it equals no row. Arrow cuts other values to
    the column's type (0.0014 to 0.001 of a decimal, noon to the date, 2 to true), so values that would be cut
    are left out. Zeros of floats also get their negative: Arrow compares the bits, while Hive's ``=`` and
    Arrow's own treat -0.0 and 0.0 as equal.
    """
    pickled = _pickled(expression)
    metadata = _metadata(pickled.schema)
    changes = {}
    for at, (key, value) in enumerate(metadata):
        if (key, value) != (b"call", b"is_in"):
            continue
        path, options = _column_and_options(metadata[at + 1 :])
        data_type = _type_at(schema, path)
        if options is None or data_type is None:
            continue
        given = pickled.column(options)
        values = found = given.field("value_set").flatten()
        if _is_exact(data_type) and _is_exact(values.type) and data_type != values.type:
            values = exact_values(values, data_type)
        elif _is_cut(values.type, data_type):
            values = _uncut(values, data_type)
        if pa.types.is_floating(data_type) and (zeros := _zeros(values, data_type)) is not None:
            values = zeros
        if values is not found:
            changes[options] = _with_value_set(given, values)
    return _rebuilt(expression, pickled, changes)


def exact_values(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the whole numbers or decimals that ``data_type`` can hold, as that type, and the nulls."""
    scale = getattr(data_type, "scale", 0)
    wide = values.cast(pa.decimal256(_DIGITS, max(scale, getattr(values.type, "scale", 0))))
    cut = wide.cast(pa.decimal256(_DIGITS, scale), safe=False)
    if pa.types.is_integer(data_type):
        first, end = -(1 << data_type.bit_width - 1), 1 << data_type.bit_width - 1
    else:
        first, end = 1 - 10**data_type.precision, 10**data_type.precision
    # Use the same types on both sides, because Arrow finds no common type for such wide ones.
    low, high = (pa.scalar(Decimal(each).scaleb(-scale, _EXACT)).cast(cut.type) for each in (first, end - 1))
    parts = [pc.equal(cut.cast(wide.type), wide), pc.less_equal(cut, high), pc.greater_equal(cut, low)]
    return cut.filter(pc.fill_null(reduce(pc.and_, parts), True)).cast(data_type)


def _is_cut(given: pa.DataType, data_type: pa.DataType) -> bool:
    """Return True if Arrow's cast of a set's values to a column's type may lose part of them."""
    if pa.types.is_boolean(data_type):
        return bool(given != data_type)
    return bool(
        (pa.types.is_decimal(data_type) and pa.types.is_floating(given))
        or (pa.types.is_date(data_type) and pa.types.is_timestamp(given))
    )


def _uncut(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the values that survive a cast to the column's type and back, in the column's type, and nulls.

    All values are returned if Arrow does not have such casts; Arrow then also rejects the set.
    """
    try:
        cut = values.cast(data_type, safe=False)
        kept = pc.fill_null(pc.equal(cut.cast(values.type, safe=False), values), True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return values
    return cut.filter(kept)


def _zeros(values: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """Return the numbers with both zeros; None if there is no zero among them."""
    if not (_is_exact(values.type) or pa.types.is_floating(values.type)):
        return None
    floats = values if pa.types.is_floating(values.type) else values.cast(data_type, safe=False)
    if not pc.any(pc.equal(floats, pa.scalar(0.0, floats.type))).as_py():
        return None
    return pa.concat_arrays([floats, pa.array([0.0, -0.0], floats.type)])


def _is_exact(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(data_type) or pa.types.is_decimal(data_type))


def _column_and_options(parts: Sequence[tuple[bytes, bytes]]) -> tuple[Path, int | None]:
    """Return the column to which a function is applied, and the number of its options.

    None if its argument is not a column.
    """
    key, value = parts[0]
    length = int(value) if key == _NESTED else 0
    names = parts[1 : 1 + length] if length else parts[:1]
    following, number = parts[len(names) + bool(length)]
    if key not in (_FIELD, _NESTED) or following != _OPTIONS:
        return (), None
    return tuple(name.decode() for _, name in names), int(number)


def _type_at(schema: pa.Schema, path: Path) -> pa.DataType | None:
    found: pa.Schema | pa.DataType = schema
    for name in path:
        if not isinstance(found, pa.Schema | pa.StructType) or found.get_field_index(name) < 0:
            return None
        found = found.field(name).type
    return found if path and isinstance(found, pa.DataType) else None


def _with_value_set(options: pa.StructArray, values: pa.Array) -> pa.StructArray:
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    fields = [field.with_type(lists.type) if field.name == "value_set" else field for field in options.type]
    arrays = [lists if field.name == "value_set" else options.field(field.name) for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _rebuilt(
    expression: pc.Expression, pickled: pa.RecordBatch, changes: Mapping[int, pa.Array]
) -> pc.Expression:
    """Return the expression with other literals and options, given by the numbers of their columns."""
    if not changes:
        return expression
    columns = [changes.get(at, column) for at, column in enumerate(pickled.columns)]
    fields = [field.with_type(column.type) for field, column in zip(pickled.schema, columns, strict=True)]
    schema = pa.schema(fields).with_metadata(pa.KeyValueMetadata(_metadata(pickled.schema)))
    return _unpickled(expression, pa.RecordBatch.from_arrays(columns, schema=schema))


def _unpickled(expression: pc.Expression, pickled: pa.RecordBatch) -> pc.Expression:
    """Return the expression with other parts. The batch has one row, even without columns."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pickled.schema) as writer:
        writer.write_batch(pickled)
    rebuild, _ = expression.__reduce__()
    rebuilt: pc.Expression = rebuild(sink.getvalue())
    return rebuilt


def _pickled(expression: pc.Expression) -> pa.RecordBatch:
    _, (buffer,) = expression.__reduce__()
    return pa.ipc.open_file(pa.BufferReader(buffer)).get_batch(0)


def _small(column: pa.Array) -> pa.Array:
    if not pa.types.is_integer(column.type) or column.null_count:
        return column
    value = column[0].as_py()
    for small in _SMALL_INTEGERS:
        if small.bit_width < column.type.bit_width and -(1 << small.bit_width - 1) <= value < 1 << (
            small.bit_width - 1
        ):
            return pa.array([value], small)
    return column


def _metadata(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """Return all metadata of a schema, in order.

    They are stored as the number of pairs, followed by keys and values, each after its length.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    texts = _texts(address) if address else iter(())
    return list(zip(texts, texts, strict=True))


def _texts(address: int) -> Iterator[bytes]:
    count = ctypes.c_int32.from_address(address).value
    at = address + ctypes.sizeof(ctypes.c_int32)
    for _ in range(2 * count):
        length = ctypes.c_int32.from_address(at).value
        at += ctypes.sizeof(ctypes.c_int32)
        yield ctypes.string_at(at, length)
        at += length
