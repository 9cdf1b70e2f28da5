"""The value of a DEFAULT constraint: a literal, a cast of one, the time or the user.

Hive 3.1 takes nothing else; 4.1 takes every constant expression, of which the others are refused.
"""

from __future__ import annotations

import getpass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.expressions.hive_sql import parsed_sql
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType, arrow_type
from mutation_api.types.misfit import MisfitError, UnfitTypeError
from mutation_api.types.text_values import values_of_texts

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

__all__ = ["default_value"]

_CASTS = ("Cast", "TryCast")
_TEXTS = ("string", "varchar", "char")
_FLOATS = ("float", "double")


def default_value(text: str, hive_type: HiveType, what: str, now: datetime) -> pa.Scalar:
    """The value that Hive stores in rows that lack the column.

    Args:
        text: the constraint's SQL text.
        hive_type: type of the column.
        what: names the constraint in messages.
        now: the local wall clock, for ``current_date`` and ``current_timestamp``.

    Returns:
        A scalar of ``arrow_type(hive_type, timestamp_unit="us")``.

    Raises:
        ConfigurationError: only Hive can evaluate it.
    """
    tree = parsed_sql(text, what)
    while type(tree).__name__ in (*_CASTS, "Paren"):
        tree = tree.this
    kind = hive_type.kind
    try:
        value = _value(tree, hive_type, now)
        if isinstance(value, str) and kind not in _TEXTS:
            found = values_of_texts(pa.array([value]), hive_type)
        else:
            found = pa.array(
                [value], pa.string() if kind in _TEXTS else arrow_type(hive_type, timestamp_unit="us")
            )
        return convert_to_column(found, hive_type, column=what, timestamp_unit="us")[0]
    except _UNFIT as error:
        raise ConfigurationError(
            f"{what} cannot be evaluated here, so give the column a value in each row: {error}"
        ) from error


class _UnknownError(Exception):
    """Only Hive knows the value."""


_UNFIT = (
    _UnknownError,
    MisfitError,
    UnfitTypeError,
    RecordLayoutError,
    RecordValueError,
    pa.ArrowException,
    InvalidOperation,
    ValueError,
    TypeError,
)


def _value(tree: Tree, hive_type: HiveType, now: datetime) -> Any:
    kind, name = hive_type.kind, type(tree).__name__
    if name == "Null":
        return None
    if name == "Boolean" and kind == "boolean":
        return bool(tree.this)
    if name == "CurrentDate" and kind == "date":
        return now.date()
    if name == "CurrentTimestamp" and kind == "timestamp":
        return now
    if name == "CurrentUser" and kind in _TEXTS:
        return getpass.getuser()
    if name != "Literal":
        raise _UnknownError(f"{tree.sql(dialect='hive')} is not a literal")
    return _literal(str(tree.this), bool(tree.is_string), hive_type)


def _literal(text: str, is_string: bool, hive_type: HiveType) -> Any:
    """A text is cut as Hive's cast does; the type of a number is the column's, which Hive has checked."""
    kind = hive_type.kind
    if kind in _TEXTS:
        if not is_string and not text.lstrip("-").isdigit():
            raise _UnknownError(f"Hive releases differ in the text of {text}")
        return text[: hive_type.length] if hive_type.length else text
    if kind == "binary":
        raise _UnknownError(f"{text!r} is no literal of type binary")
    if is_string and kind not in ("decimal", *_FLOATS, *INTEGER_KINDS):
        return text
    if kind in INTEGER_KINDS:
        return int(text)
    if kind in _FLOATS:
        return float(text)
    if kind == "decimal":
        return Decimal(text)
    raise _UnknownError(f"{text!r} is no literal of type {hive_type.text}")
