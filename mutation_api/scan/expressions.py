"""Arrow expressions over rows: their type, the columns that they read, their values.

Columns of a struct are named by a path: ``pc.field("source", "price")``. Arrow does not say which columns an
expression reads, so they are found by leaving out one after the other: what is read cannot be resolved then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import lazy_loader
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError

acero = lazy_loader.load("pyarrow.acero", suppress_warning=True)  # it imports pandas, if that is installed

__all__ = ["Path", "columns_read", "evaluate", "named_column", "paths_read", "result_type"]

Path = tuple[str, ...]
"""A column's name, or for a field of a struct column both names."""

_BY_NUMBER = "FieldPath("
"""How Arrow shows a column that is named by its number."""
_UNKNOWN = re.compile(
    r"No match for FieldRef\.(?:Name\((?P<name>.*)\)"
    r"|Nested\(FieldRef\.Name\((?P<struct>.*)\) FieldRef\.Name\((?P<field>.*)\)\)) in "
)
"""How Arrow says that there is no such column, or no such field of a struct column."""
_OTHER_TYPE = re.compile(
    r"Function '(?:equal|not_equal|(?:less|greater)(?:_equal)?)' has no kernel|Array type doesn't match"
)
"""How Arrow says that it does not compare these types."""


def result_type(expression: pc.Expression, schema: pa.Schema, what: str) -> pa.DataType:
    """The type of an expression's values over rows of ``schema``.

    Raises:
        RecordLayoutError: a column is missing, or a function does not take these types; ``what`` names the
            expression.
    """
    try:
        return _evaluated(expression, schema.empty_table()).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        names = ", ".join(".".join(path) for path in _paths(schema))
        raise RecordLayoutError(
            f"{what} {expression} cannot be resolved over {names}: {_reason(str(error), schema)}"
        ) from error


def named_column(text: str, names: Sequence[str], what: str) -> str:
    """The column that a text names in any case; ``names`` are in lower case.

    Raises:
        RecordLayoutError: there is none, as when the text is a condition; ``what`` says whose text it is.
    """
    if text.lower() not in names:
        raise RecordLayoutError(
            f"{what} {text!r}: a text is the name of a column, one of {', '.join(names)}; anything else is "
            'an Arrow expression, such as pc.field("x") > 1'
        )
    return text.lower()


def paths_read(expression: pc.Expression, schema: pa.Schema) -> frozenset[Path]:
    """The columns that an expression reads; of struct columns the fields. It resolves over ``schema``."""
    paths = list(_paths(schema))
    return frozenset(path for path in paths if not _resolves(expression, _without(schema, path)))


def columns_read(expression: pc.Expression, schema: pa.Schema, what: str) -> frozenset[str]:
    """The columns that an expression reads, as a whole or in part. It resolves over ``schema``.

    Raises:
        RecordLayoutError: it names columns by their number; ``what`` names the expression.
    """
    if _BY_NUMBER in str(expression):
        raise RecordLayoutError(f"{what} {expression} names a column by its number: use its name")
    return frozenset(name for name in schema.names if not _resolves(expression, _without(schema, (name,))))


def evaluate(expression: pc.Expression, rows: pa.Table) -> pa.Array:
    """The values of an expression, one for each row; it resolves over the rows' schema.

    Raises:
        pa.ArrowInvalid: a value has none (a division by zero, an overflow, a text that is no number).
    """
    return _evaluated(expression, rows).combine_chunks()


def _evaluated(expression: pc.Expression, rows: pa.Table) -> pa.ChunkedArray:
    plan = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(rows)),
        acero.Declaration("project", acero.ProjectNodeOptions([expression], ["value"])),
    ]
    return acero.Declaration.from_sequence(plan).to_table(use_threads=False).column(0)


def _reason(message: str, schema: pa.Schema) -> str:
    """Why an expression cannot be resolved, from Arrow's message, and what to write instead."""
    first = message.splitlines()[0]
    unknown = _UNKNOWN.match(first)
    if unknown is not None:
        path = tuple(filter(None, unknown.group("struct", "field", "name")))
        meant = [known for known in _paths(schema) if known[-1].lower() == path[-1].lower()]
        written = " or ".join(f"pc.field({', '.join(map(_quoted, known))})" for known in meant)
        return f"there is no column {'.'.join(path)}" + (f", write {written}" if meant else "")
    if _OTHER_TYPE.match(first):
        example = 'datetime.date(2024, 5, 1) or Decimal("1.50")'
        return f"{first}: a value must have the column's type, as {example}"
    return first


def _quoted(name: str) -> str:
    return f'"{name}"'


def _resolves(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        _evaluated(expression, schema.empty_table())
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
    """The schema with a column, or a field of a struct column, under another name."""
    at = schema.get_field_index(path[0])
    field = schema.field(at)
    if len(path) == 1:
        return schema.set(at, field.with_name(_other_name(schema.names)))
    names = [child.name for child in field.type]
    children = [c.with_name(_other_name(names)) if c.name == path[1] else c for c in field.type]
    return schema.set(at, pa.field(field.name, pa.struct(children)))


def _other_name(names: Sequence[str]) -> str:
    """A name that is none of these."""
    return f"{max(names, key=len)}_"
