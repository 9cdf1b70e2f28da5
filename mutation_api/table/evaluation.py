"""Arrow expressions over rows: their type, the columns that they read, and their values.

A field of a struct column is named by a path: ``pc.field("source", "price")``. An expression is resolved only
over the columns that it names, so other columns have no cost and may have any type.

A literal with trailing blanks that is compared with a char column is rejected. A char is read without its
trailing blanks, so for Arrow it differs from every such string, while Hive's releases disagree. Any answer
would be a guess.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError, listed
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.table.expression_parts import (
    Path,
    expression_text,
    folded,
    has_fatal_literal,
    named_paths,
    with_small_integers,
    with_typed_sets,
)

_BY_NUMBER = "non-name field_refs"
"""The message of Arrow if it cannot pickle a reference to a column by its number."""
_TOO_NARROW = ("Precision is not great enough", "Decimal precision out of range")
"""The messages of Arrow if it finds no common type for a decimal and another number."""
_UNKNOWN = re.compile(
    r"No match for FieldRef\.(?:Name\((?P<name>.*)\)"
    r"|Nested\(FieldRef\.Name\((?P<struct>.*)\) FieldRef\.Name\((?P<field>.*)\)\)) in "
)
"""The message of Arrow if a column, or a field of a struct column, does not exist."""
_TOGETHER = 50
"""The number of expressions that are evaluated at a time."""
_DIGITS = 38
"""The maximum number of digits of Hive's decimals."""
_OTHER_TYPE = re.compile(
    r"Function '(?:equal|not_equal|(?:less|greater)(?:_equal)?)' has no kernel|Array type doesn't match"
)
"""The message of Arrow if it cannot compare these types."""


def result_type(expression: pc.Expression, schema: pa.Schema, what: str) -> pa.DataType:
    """Return the type of an expression's values over rows of ``schema``.

    Raises:
        RecordLayoutError: If a column is missing or given by its number, or if a function does not accept
            these types. ``what`` is the name of the expression in the message.
    """
    named = _named(expression, schema, what)
    with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):
        if has_fatal_literal(expression):
            raise RecordLayoutError(
                f"{what} {expression_text(expression)} contains a NULL of type large_string or "
                "large_binary, which makes pyarrow end the process: use is_null(), or pa.scalar(None, "
                "pa.string())"
            )
    try:
        return _values([expression], _narrowed(schema, named).empty_table())[0].type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        names = listed([".".join(path) for path in _paths(schema)])
        text, reason = expression_text(expression), _reason(str(error), schema)
        raise RecordLayoutError(f"{what} {text} cannot be resolved over {names}: {reason}") from error


def checked_expression(given: object, what: str) -> pc.Expression:
    """Return the caller's value if it is an expression.

    Raises:
        RecordLayoutError: If it is something else. The message states what to pass.
    """
    if isinstance(given, pc.Expression):
        return given
    kind = type(given)
    also = "; instead of Polars' pl.col use pc.field" if kind.__module__.startswith("polars") else ""
    raise RecordLayoutError(
        f"{what} is of type {kind.__module__}.{kind.__qualname__}: pass an Arrow expression, such as "
        f'pc.field("x") > 1, or the name of a column{also}'
    )


def named_column(text: str, names: Sequence[str], what: str) -> str:
    """Return the column that a string names, in any case. ``names`` are in lower case.

    Raises:
        RecordLayoutError: If there is no such column, for example because the string is a condition. ``what``
            is the name of the string in the message.
    """
    if text.lower() not in names:
        raise RecordLayoutError(
            f"{what} {text!r}: a string must be the name of a column, one of {', '.join(names)}. For "
            'anything else pass an Arrow expression, such as pc.field("x") > 1, or pc.scalar("…") for a '
            "string value"
        )
    return text.lower()


def paths_read(expression: pc.Expression, schema: pa.Schema, what: str) -> frozenset[Path]:
    """Return the paths of the columns that an expression reads; for struct columns, those of their fields.

    The expression must resolve over ``schema``.

    Raises:
        RecordLayoutError: If it refers to columns by their number. ``what`` is its name in the message.
    """
    named = _named(expression, schema, what)
    whole = {path for path in named if len(path) == 1 and pa.types.is_struct(schema.field(path[0]).type)}
    if not whole:
        return frozenset(path[:2] for path in named)
    # A function may take a struct and read one of its fields. Without a field that it reads, it cannot be
    # resolved.
    narrow = _narrowed(schema, named)
    fields = {path for path in _paths(narrow) if path[:1] in whole}
    read = {path for path in fields if not _resolves(expression, _without(narrow, path))}
    return frozenset({path[:2] for path in named - whole} | read)


def columns_read(expression: pc.Expression, schema: pa.Schema, what: str) -> frozenset[str]:
    """Return the columns that an expression reads, entirely or in part. It must resolve over ``schema``.

    Raises:
        RecordLayoutError: If it refers to columns by their number. ``what`` is its name in the message.
    """
    return frozenset(path[0] for path in _named(expression, schema, what))


def bindable(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return the expression in a form that Arrow itself binds to rows of ``schema``, if there is one."""
    if _may_cut_sets(schema):
        expression = with_typed_sets(expression, schema)
    try:
        _projected([expression], schema.empty_table())
    except pa.ArrowInvalid as error:
        return with_small_integers(expression) if is_too_narrow(error) else expression
    return expression


def is_too_narrow(error: pa.ArrowInvalid) -> bool:
    """Return True if Arrow found no common type for a decimal and a number; :func:`evaluate` may find one."""
    return any(text in str(error) for text in _TOO_NARROW)


def evaluate(expression: pc.Expression, rows: pa.Table) -> pa.Array:
    """Return the values of an expression, one per row. It must resolve over the rows' schema.

    Raises:
        pa.ArrowInvalid: If a value cannot be computed (division by zero, overflow, a string that is not a
            number).
    """
    return _values([expression], rows)[0].combine_chunks()


def evaluate_each(expressions: Mapping[str, pc.Expression], rows: pa.Table) -> dict[str, pa.Array]:
    """Return the values of several expressions by name. See :func:`evaluate`.

    They are evaluated in groups, over the columns that a group names, because Arrow searches all columns for
    each name.
    """
    found: dict[str, pa.Array] = {}
    names = [*expressions]
    for first in range(0, len(names), _TOGETHER):
        part = [expressions[name] for name in names[first : first + _TOGETHER]]
        read = rows if len(names) <= _TOGETHER else _narrow_rows(rows, part)
        values = [each.combine_chunks() for each in _values(part, read)]
        found.update(zip(names[first : first + _TOGETHER], values, strict=True))
    return found


def _narrow_rows(rows: pa.Table, expressions: Iterable[pc.Expression]) -> pa.Table:
    """Return the rows with only the columns, and fields of structs, that some expressions name."""
    named = frozenset[Path]().union(*(_named(each, rows.schema, "a value") for each in expressions))
    schema = _narrowed(rows.schema, named)
    return pa.table([_narrow_column(rows, field) for field in schema], schema=schema)


def _narrow_column(rows: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows)
    column = rows.column(field.name)
    if column.type == field.type:
        return column
    whole = column.combine_chunks()
    return pa.StructArray.from_arrays(
        [whole.field(each.name) for each in field.type], fields=[*field.type], mask=whole.is_null()
    )


def _values(expressions: Sequence[pc.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    """Evaluate expressions; use wider types if Arrow finds no common type for a decimal and a number."""
    if _may_cut_sets(rows.schema):
        expressions = [with_typed_sets(expression, rows.schema) for expression in expressions]
    try:
        return _projected(expressions, rows)
    except pa.ArrowInvalid as error:
        if not is_too_narrow(error):
            raise
        first = error
    small = [with_small_integers(expression) for expression in expressions]
    try:
        return _projected(small, rows)
    except pa.ArrowInvalid:
        pass
    wide = pa.schema([field.with_type(_wide(field.type)) for field in rows.schema])
    try:
        found = _projected(small, rows.cast(wide))
    except pa.ArrowInvalid:
        raise first from None
    return [each.cast(_narrow(each.type)) for each in found]


def _may_cut_sets(fields: Iterable[pa.Field]) -> bool:
    """Return True if a column, or a field within structs, has a type to which Arrow cuts a set's values."""
    return any(
        pa.types.is_decimal(field.type)
        or pa.types.is_floating(field.type)
        or pa.types.is_date(field.type)
        or pa.types.is_boolean(field.type)
        or (pa.types.is_struct(field.type) and _may_cut_sets(field.type))
        for field in fields
    )


def _wide(data_type: pa.DataType) -> pa.DataType:
    """Return the type with twice the digits for decimals, including those within structs."""
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_wide(field.type)) for field in data_type])
    if pa.types.is_decimal128(data_type):
        return pa.decimal256(data_type.precision, data_type.scale)
    return data_type


def _narrow(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a result. The cast to it raises ArrowInvalid if a value has too many digits."""
    if pa.types.is_decimal256(data_type) and data_type.scale <= _DIGITS:
        return pa.decimal128(_DIGITS, data_type.scale)
    return data_type


def _projected(expressions: Sequence[pc.Expression], rows: pa.Table) -> list[pa.ChunkedArray]:
    from pyarrow import acero  # it imports pandas, if that is installed

    names = [str(at) for at in range(len(expressions))]
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
        acero.Declaration("project", acero.ProjectNodeOptions([*expressions], names)),
    ]
    found: list[pa.ChunkedArray] = acero.Declaration.from_sequence(plan).to_table(use_threads=False).columns
    return found


def _named(expression: pc.Expression, schema: pa.Schema, what: str) -> frozenset[Path]:
    """Return the columns that an expression names, or all columns if Arrow cannot determine them."""
    try:
        return named_paths(expression)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        if _BY_NUMBER in str(error):
            raise RecordLayoutError(
                f"{what} {expression_text(expression)} refers to a column by its number; use its name"
            ) from error
        return frozenset(_paths(schema))


def _narrowed(schema: pa.Schema, paths: Iterable[Path]) -> pa.Schema:
    """Return the columns of a schema that some paths name, with only the named fields of structs.

    The result has at least one column.
    """
    fields: dict[str, dict[str, pa.Field] | None] = {}
    for name, *rest in sorted(paths):
        at = schema.get_field_index(name)
        if at < 0:
            continue
        whole = schema.field(at)
        if not rest or not pa.types.is_struct(whole.type):
            fields[name] = None
        elif (chosen := fields.setdefault(name, {})) is not None and whole.type.get_field_index(rest[0]) >= 0:
            chosen[rest[0]] = whole.type.field(rest[0])
    if not fields:  # a table without columns has no rows
        return pa.schema([("", pa.null())])
    return pa.schema(
        [
            schema.field(name) if chosen is None else pa.field(name, pa.struct([*chosen.values()]))
            for name, chosen in fields.items()
        ]
    )


def _reason(message: str, schema: pa.Schema) -> str:
    """Return the reason why an expression cannot be resolved, from Arrow's message, with advice."""
    first = message.splitlines()[0]
    unknown = _UNKNOWN.match(first)
    if unknown is not None:
        path = tuple(filter(None, unknown.group("struct", "field", "name")))
        meant = [known for known in _paths(schema) if known[-1].lower() == path[-1].lower()]
        written = " or ".join(f"pc.field({', '.join(map(_quoted, known))})" for known in meant)
        return f"column {'.'.join(path)} does not exist" + (f"; write {written}" if meant else "")
    if _OTHER_TYPE.match(first):
        example = 'datetime.date(2024, 5, 1) or Decimal("1.50")'
        return f"{first}: a value must have the column's type, for example {example}"
    return first


def _quoted(name: str) -> str:
    return f'"{name}"'


def _resolves(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        _values([expression], schema.empty_table())
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return False
    return True


def _paths(schema: pa.Schema) -> Iterator[Path]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from ((field.name, child.name) for child in field.type)
        else:
            yield (field.name,)


def _without(schema: pa.Schema, path: Path) -> pa.Schema:
    """Return the schema with a column, or a field of a struct column, renamed."""
    at = schema.get_field_index(path[0])
    field = schema.field(at)
    if len(path) == 1:
        return schema.set(at, field.with_name(_other_name(schema.names)))
    names = [child.name for child in field.type]
    children = [c.with_name(_other_name(names)) if c.name == path[1] else c for c in field.type]
    return schema.set(at, pa.field(field.name, pa.struct(children)))


def _other_name(names: Sequence[str]) -> str:
    """Return a name that differs from all of these."""
    return f"{max(names, key=len)}_"


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_in", "index_in")
_KEEP_TEXTS = ("cast", "coalesce", "if_else", "utf8_lower", "utf8_upper", "ascii_lower", "ascii_upper")
"""Functions that return one of their string arguments, possibly in another form, but with its trailing
blanks."""


@dataclass(frozen=True)
class _Texts:
    """The possible origins of the string that a part returns: some char columns, or some padded strings."""

    columns: tuple[Path, ...] = ()
    padded: tuple[str, ...] = ()

    def __add__(self, other: _Texts) -> _Texts:
        return _Texts(self.columns + other.columns, self.padded + other.padded)


def char_paths(types: Mapping[str, str], *above: str) -> frozenset[Path]:
    """Return the paths of char columns, and of char fields of struct columns.

    Args:
        types: Hive types by column.
        above: the first elements of each path, such as the side of a merge.
    """
    found = set()
    for name, text in types.items():
        if "char(" in text:
            kind = parse_hive_type(text)
            found |= {(*above, name, *path) for path in _char_fields(kind)}
    return frozenset(found)


def _char_fields(kind: HiveType) -> Iterator[Path]:
    if kind.kind == "char":
        yield ()
    elif kind.kind == "struct":
        for name, child in zip(kind.field_names, kind.children, strict=True):
            yield from ((name, *path) for path in _char_fields(child))


def check_no_padded_texts(expression: pc.Expression, chars: frozenset[Path], what: str) -> None:
    """Reject an expression that compares a char column with a string that ends with a blank.

    Args:
        expression: an expression with names of columns in lower case.
        chars: the paths of char columns. See :func:`char_paths`.
        what: the role of the expression, for messages.

    Raises:
        RecordLayoutError: If it contains such a comparison. The message names the column and the string.
    """
    if not chars:
        return

    def of_call(name: str, arguments: Sequence[_Texts], values: pa.Array | None) -> _Texts:
        found = sum(arguments, _Texts((), _padded(values)))
        if name not in _COMPARISONS:
            return found if name in _KEEP_TEXTS else _Texts()
        if found.columns and found.padded:
            raise RecordLayoutError(
                f"{what} {expression_text(expression)} compares {'.'.join(found.columns[0])}, a char, with "
                f"{found.padded[0]!r}: a char is read without its trailing blanks, and Hive's releases "
                f"differ in such comparisons. Write {found.padded[0].rstrip(' ')!r}"
            )
        return _Texts()

    with contextlib.suppress(pa.ArrowNotImplementedError, pa.ArrowInvalid):  # raised for unknown columns
        folded(
            expression,
            lambda path: _Texts((path,)) if path in chars else _Texts(),
            lambda value: _Texts((), _padded(value)),
            of_call,
        )


def _padded(values: pa.Array | None) -> tuple[str, ...]:
    if values is None or not _holds_texts(values.type):
        return ()
    return tuple(text for text in values.to_pylist() if text is not None and text.endswith(" "))


def _holds_texts(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_texts(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
