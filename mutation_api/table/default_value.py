"""The value of a DEFAULT constraint: a literal, a cast of a literal, the time or the user.

Hive 3.1 accepts only these. Hive 4.1 accepts every constant expression; all others are rejected here.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType, MisfitError, TypeFamily, UnfitTypeError, arrow_type
from mutation_api.format.text_values import values_of_texts
from mutation_api.table.hive_sql import parsed_sql

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

_CASTS = ("Cast", "TryCast")
_NUMBERS = (TypeFamily.DECIMAL, TypeFamily.FLOAT, TypeFamily.INTEGER)
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|-?\.[0-9]+")


def default_value(text: str, hive_type: HiveType, what: str, now: datetime, user: str) -> pa.Scalar:
    """Return the value that Hive stores in rows that lack the column.

    Args:
        text: the constraint's SQL expression.
        hive_type: the type of the column.
        what: the name of the constraint in messages.
        now: the current local time, for ``current_date`` and ``current_timestamp``.
        user: the user, for ``current_user``; '' if the user is not known.

    Returns:
        A scalar of ``arrow_type(hive_type, timestamp_unit="us")``.

    Raises:
        ConfigurationError: If only Hive can evaluate the expression.
    """
    tree = parsed_sql(text, what)
    is_text = hive_type.family is TypeFamily.TEXT
    try:
        value = _value(tree, hive_type, now, user)
        if isinstance(value, str) and not is_text:
            found = values_of_texts(pa.array([value]), hive_type)
        else:
            found = pa.array([value], pa.string() if is_text else arrow_type(hive_type, timestamp_unit="us"))
        return convert_to_column(found, hive_type, column=what, timestamp_unit="us")[0]
    except _UNFIT as error:
        raise ConfigurationError(
            f"{what} cannot be evaluated without Hive: {error}. Give the column a value in each row"
        ) from error


class _UnknownError(Exception):
    """Raised if only Hive can determine the value."""


_UNFIT = (
    _UnknownError,
    MisfitError,
    UnfitTypeError,
    RecordLayoutError,
    RecordValueError,
    pa.ArrowException,
    ArithmeticError,
    ValueError,
    TypeError,
)


def _value(tree: Tree, hive_type: HiveType, now: datetime, user: str) -> Any:
    family, name = hive_type.family, type(tree).__name__
    if name == "Paren":
        return _value(tree.this, hive_type, now, user)
    if name in _CASTS:
        _check_target(tree, hive_type)
        return _value(tree.this, hive_type, now, user)
    if name == "Null":
        return None
    if name == "Boolean" and family is TypeFamily.BOOLEAN:
        return bool(tree.this)
    if name == "CurrentDate" and family is TypeFamily.DATE:
        return now.date()
    if name == "CurrentTimestamp" and family is TypeFamily.TIMESTAMP:
        return now
    if name == "CurrentUser" and family is TypeFamily.TEXT and user:
        return user
    sign = ""
    if name == "Neg" and not tree.this.args.get("is_string"):
        tree, sign = tree.this, "-"
    if type(tree).__name__ != "Literal":
        raise _UnknownError(f"{tree.sql(dialect='hive')} is not a literal")
    return _literal(sign + str(tree.this), bool(tree.is_string), hive_type)


def _check_target(tree: Tree, hive_type: HiveType) -> None:
    """Check that a cast is to the column's type, as Hive requires, and that it is the only cast of its kind.

    sqlglot represents ``5L`` and ``date '…'`` as casts and drops the lengths of char(n) and varchar(n). So
    only one cast of a string is accepted.
    """
    family, target = hive_type.family, tree.args["to"]
    inner = tree.this
    while type(inner).__name__ == "Paren":
        inner = inner.this
    found, given = target.this.name, [int(each.name) for each in target.expressions]
    if family is TypeFamily.TEXT:
        is_same = found == "TEXT" and type(inner).__name__ not in _CASTS
    elif family is TypeFamily.DECIMAL:
        is_same = found == "DECIMAL" and (given or [10, 0]) == [hive_type.precision, hive_type.scale]
    else:
        is_same = found == hive_type.kind.upper()
    if not is_same:
        raise _UnknownError(
            f"{tree.sql(dialect='hive')} is more than a cast of a literal to {hive_type.text}"
        )


def _literal(text: str, is_string: bool, hive_type: HiveType) -> Any:
    """Return the value of a literal.

    A string is cut as Hive's cast cuts it. A number gets the column's type, which Hive has checked.
    """
    family = hive_type.family
    is_number = family in _NUMBERS
    if family is TypeFamily.TEXT:
        if not is_string:
            if not _WHOLE.fullmatch(text) or abs(int(text)) >= 2**63:
                raise _UnknownError(f"Hive releases convert {text} to different strings")
            text = str(int(text))
        return text[: hive_type.length] if hive_type.length else text
    if family is TypeFamily.BINARY or not (is_string or is_number):
        raise _UnknownError(f"{text!r} is not a literal of type {hive_type.text}")
    if is_number and not _NUMBER.fullmatch(text):
        raise _UnknownError(f"{text!r} is not a number")
    if family is TypeFamily.INTEGER:
        return int(text)
    if family is TypeFamily.FLOAT:
        return float(text)
    return Decimal(text) if family is TypeFamily.DECIMAL else text
