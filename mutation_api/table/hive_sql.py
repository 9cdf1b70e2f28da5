"""Conditions in Hive's SQL, translated to Arrow expressions.

sqlglot parses the SQL. Only expressions that certainly have the same meaning in Arrow are translated:
comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS, arithmetic, CASE, IF, COALESCE and some functions, over
values whose types Hive compares without a lossy conversion. Everything else is rejected, and the message
names it.

Source: the rules were tried with CHECK constraints on Hive 3.1.3 and 4.1.0. A row passes unless the condition
is false, so NULL passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import lazy_loader
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import ConfigurationError
from mutation_api.format.hive_type import HiveType, arrow_type
from mutation_api.table.sql_values import (
    NotTranslatedError,
    Value,
    as_decimal,
    as_double,
    boolean,
    check_arithmetic,
    check_divisor,
    comparison,
    constant,
    fits,
    number,
    refused,
    written_date,
    written_timestamp,
)

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

sqlglot = lazy_loader.load("sqlglot", suppress_warning=True)

_INT, _BIGINT = pa.int32(), pa.int64()
_DIGITS = 38
"""The maximum number of digits of Hive's decimals."""
_LINE_BREAK = "[\n\r\u0085\u2028\u2029]"
"""The characters that Java's regular expressions treat as line breaks."""
_COMPARING = frozenset(
    {"EQ", "NEQ", "NULLSAFE_EQ", "LT", "LTE", "GT", "GTE", "IN", "LIKE", "BETWEEN", "RLIKE"}
)
_SEPARATING = frozenset({"L_PAREN", "COMMA", "OR", "AND", "NOT", "CASE", "WHEN", "THEN", "ELSE"})
"""The kinds of sqlglot's tokens that compare values, and those that separate comparisons."""
_GREGORIAN = date(1582, 10, 15)
"""The first day of the Gregorian calendar."""
_ODD_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[^'\"\\]")
"""Matches a backslash in a SQL string before any character other than a quote or a backslash."""


def parsed_sql(text: str, what: str) -> Tree:
    """Return the syntax tree of one expression in Hive's SQL.

    Raises:
        ConfigurationError: If it cannot be parsed. ``what`` is its name in the message.
    """
    if _ODD_ESCAPE.search(text):
        raise ConfigurationError(f"{what} has an escaped character, which only Hive can read")
    try:
        # Parse it as a condition, because a column called comment would begin a command.
        parsed = sqlglot.Dialect.get_or_raise("hive").parse_into(sqlglot.exp.Condition, text)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise ConfigurationError(f"{what} cannot be parsed: {reason}") from error
    trees: list[Tree | None] = parsed
    if len(trees) != 1 or trees[0] is None:
        raise ConfigurationError(f"{what} cannot be parsed: it is not a single expression")
    return trees[0]


@dataclass(frozen=True)
class HiveCondition:
    """A condition as Arrow expressions.

    Attributes:
        holds: True where the condition holds; null where it is NULL. Integers that overflow are an error.
        unclear: True where Hive's answers differ by release or when vectorized. None if there is no such row.
    """

    holds: pc.Expression
    unclear: pc.Expression | None


def check_is(text: str, what: str) -> None:
    """Reject an IS that follows a comparison without parentheses, because Hive applies it to fewer operands.

    Hive applies IS to the expression between the comparison and IS, sqlglot to the whole comparison. The tree
    of sqlglot does not show whether there were parentheses.
    """
    behind, outer = False, []
    for kind in (token.token_type.name for token in sqlglot.tokenize(text, dialect="hive")):
        if kind == "L_PAREN":
            outer.append(behind)
        if kind == "R_PAREN":
            behind = outer.pop() if outer else False
        elif kind in _COMPARING:
            behind = True
        elif kind in _SEPARATING:
            behind = False
        elif kind in ("IS", "ISNULL", "NOTNULL") and behind:
            raise ConfigurationError(
                f"{what} has IS after a comparison: put the operand of IS in parentheses"
            )


def hive_condition(
    text: str, columns: Mapping[str, HiveType], what: str, fine: Collection[str] = ()
) -> HiveCondition:
    """Translate a condition in Hive's SQL to Arrow expressions.

    Args:
        text: the condition, with names of columns in any case.
        columns: types of the columns, by name in lower case. Rows have the types of ``arrow_type``: char(n)
            with or without padding, timestamps in microseconds.
        what: the name of the condition in messages.
        fine: names of columns whose timestamps are in nanoseconds.

    Raises:
        ConfigurationError: If it is not a condition, or if only Hive can interpret a part of it.

    Example:
        >>> hive_condition("v > 0 AND s IN ('a', 'b')", columns, "CHECK c1")  # doctest: +SKIP
    """
    tree = parsed_sql(text, what)
    check_is(text, what)
    translation = Translation(columns, fine)
    try:
        found = translation.value(tree)
    except RecursionError:
        raise ConfigurationError(f"{what} is nested too deeply") from None
    except NotTranslatedError as error:
        raise ConfigurationError(f"{what}: {error}") from None
    if not pa.types.is_boolean(found.type):
        raise ConfigurationError(f"{what} is a value of type {found.type}, not a condition")
    return HiveCondition(found.expression, reduce(or_, translation.unclear) if translation.unclear else None)


class Translation:
    """The translation of one SQL expression to Arrow. Subclasses have other columns, types and rules."""

    def __init__(self, columns: Mapping[str, HiveType], fine: Collection[str]) -> None:
        self._columns = columns
        self._fine = fine
        self.unclear: list[pc.Expression] = []

    def value(self, tree: Tree) -> Value:
        """Translate a node only if its rule knows all its arguments, such as ``negate`` of a NOT LIKE."""
        translate, known = RULES.get(type(tree).__name__, (None, ()))
        given = {name for name, each in tree.args.items() if each not in (None, False, [])}
        if translate is None or not given <= {*known, *_NOTES}:
            raise refused(tree)
        return translate(self, tree)

    def condition(self, tree: Tree) -> pc.Expression:
        """Translate a node that must be a condition."""
        found = self.value(tree)
        if not pa.types.is_boolean(found.type):
            raise refused(tree, f"it is of type {found.type}, not a condition")
        return found.expression

    def column(self, tree: Tree) -> Value:
        """Translate the name of a column, or of a field in one."""
        parts = [part.name.lower() for part in _parts(tree)]
        known = self._columns.get(parts[0])
        if known is None:
            raise refused(tree, f"there is no such column; the columns are {', '.join(self._columns)}")
        for part in parts[1:]:
            if known.kind != "struct" or part not in known.field_names:
                raise refused(tree, f"{known.text} has no field {part}")
            known = known.children[known.field_names.index(part)]
        expression = pc.field(*parts)
        is_char = known.kind == "char"
        if is_char:
            expression = pc.utf8_rtrim(expression, characters=" ")
        unit = "ns" if parts[0] in self._fine else "us"
        return Value(expression, arrow_type(known, timestamp_unit=unit), is_char)

    def _literal(self, tree: Tree) -> Value:
        if tree.is_string:
            return Value(pc.scalar(tree.this), pa.string(), constant=tree.this)
        return number(tree.this, tree)

    def cast(self, tree: Tree) -> Value:
        """Translate ``5L``, ``1.5BD``, ``date '…'`` and ``timestamp '…'``. sqlglot treats them as casts."""
        inner, kind = tree.this, tree.args["to"].this.name
        if type(inner).__name__ != "Literal":
            raise refused(tree)
        if kind == "DATE" and inner.is_string:
            return constant(written_date(inner.this, tree))
        if kind == "TIMESTAMP" and inner.is_string:
            return constant(written_timestamp(inner.this, tree))
        given = [int(each.name) for each in tree.args["to"].expressions]
        if inner.is_string and kind != "DECIMAL":  # some releases of sqlglot make 1.5BD a cast of '1.5'
            raise refused(tree)
        found = number(inner.this, tree)
        if kind in INTEGERS and found.is_integer and fits(found.constant, INTEGERS[kind]):
            return Value(pc.scalar(pa.scalar(found.constant, INTEGERS[kind])), INTEGERS[kind])
        if kind == "DOUBLE" and found.is_number:
            return constant(float(inner.this))
        if kind == "DECIMAL" and not found.is_float:
            exact = constant(Decimal(inner.this))
            if given == [exact.type.precision, exact.type.scale]:
                return exact
        raise refused(tree)

    def negated(self, tree: Tree) -> Value:
        """Translate a number with a sign."""
        found = self.value(tree.this)
        if isinstance(found.constant, int | float | Decimal):
            return constant(-found.constant, found.type)
        check_arithmetic(tree, found)
        return Value(pc.negate_checked(found.expression), found.type)

    def _compared(self, tree: Tree) -> Value:
        first, second = self.value(tree.this), self.value(tree.expression)
        return boolean(self._comparison(type(tree).__name__, first, second, tree))

    def _null_safe(self, tree: Tree) -> Value:
        first, second = self.value(tree.this), self.value(tree.expression)
        equal = pc.coalesce(self._comparison("EQ", first, second, tree), pc.scalar(False))
        both = pc.is_null(first.expression) & pc.is_null(second.expression)
        return boolean(equal | both)

    def _between(self, tree: Tree) -> Value:
        value, low, high = (self.value(tree.args[name]) for name in ("this", "low", "high"))
        above = self._comparison("GTE", value, low, tree)
        return boolean(above & self._comparison("LTE", value, high, tree))

    def _comparison(self, name: str, first: Value, second: Value, tree: Tree) -> pc.Expression:
        """Compare two values, and record the rows with NaN.

        Hive treats NaN as the greatest number, but vectorized it is neither less nor greater.
        """
        found = comparison(name, first, second, tree)
        if name not in ("EQ", "NEQ"):
            sides = [each.expression for each in (first, second) if each.is_float and each.constant is None]
            self.unclear += [pc.coalesce(pc.is_nan(each), pc.scalar(False)) for each in sides]
        return found

    def is_in(self, tree: Tree) -> Value:
        """Translate ``x IN (…)``."""
        value, listed = self.value(tree.this), tree.expressions
        if not listed or value.is_float:  # releases differ in whether a list finds -0.0 and NaN
            raise refused(tree)
        return boolean(
            reduce(pc.or_kleene, (self._comparison("EQ", value, self.value(each), tree) for each in listed))
        )

    def _is_(self, tree: Tree) -> Value:
        kind = type(tree.expression).__name__
        if kind == "Null":
            return boolean(pc.is_null(self.value(tree.this).expression))
        if kind != "Boolean":
            raise refused(tree)
        wanted = self.condition(tree.this)
        return boolean(pc.coalesce(wanted if tree.expression.this else ~wanted, pc.scalar(False)))

    def _like(self, tree: Tree) -> Value:
        value, pattern = self.value(tree.this), self.value(tree.expression)
        text = pattern.constant
        if not (value.is_text and isinstance(text, str)) or value.is_char or "\\" in text:
            raise refused(tree)
        if "_" in text or "%" in text:  # Hive releases, and vectorized execution, differ in line breaks
            breaks = pc.match_substring_regex(value.expression, _LINE_BREAK)
            self.unclear.append(pc.coalesce(breaks, pc.scalar(False)))
        found = pc.match_like(value.expression, text)
        return boolean(~found if tree.args.get("negate") else found)

    def _case(self, tree: Tree) -> Value:
        branches = [(each.this, each.args["true"]) for each in tree.args["ifs"]]
        return self._chosen(tree, branches, tree.args.get("default"))

    def _if_(self, tree: Tree) -> Value:
        return self._chosen(tree, [(tree.this, tree.args["true"])], tree.args.get("false"))

    def _chosen(
        self,
        tree: Tree,
        branches: list[tuple[Tree, Tree]],
        default: Tree | None,
    ) -> Value:
        if default is None:
            raise refused(tree, "it has no ELSE")
        conditions = [self.condition(each) for each, _ in branches]
        values = self._alike([*(each for _, each in branches), default], tree)
        found = values[-1].expression
        for condition, value in reversed(list(zip(conditions, values, strict=False))):
            found = pc.if_else(pc.coalesce(condition, pc.scalar(False)), value.expression, found)
        return Value(found, values[0].type)

    def _coalesce(self, tree: Tree) -> Value:
        values = self._alike([tree.this, *tree.expressions], tree)
        return Value(pc.coalesce(*(each.expression for each in values)), values[0].type)

    def _alike(self, trees: list[Tree], whole: Tree) -> list[Value]:
        """Return values of one type. Integers get the widest of their types."""
        values = [self.value(each) for each in trees]
        if all(each.is_integer for each in values):
            widest = max((each.type for each in values), key=lambda each: each.bit_width)
            return [Value(each.expression.cast(widest), widest) for each in values]
        if len({each.type for each in values}) > 1 or any(each.is_char for each in values):
            raise refused(whole, "its values have different types")
        return values

    def _sum_or_product(self, tree: Tree) -> Value:
        first, second = self.value(tree.this), self.value(tree.expression)
        check_arithmetic(tree, first, second)
        function = _ARITHMETIC[type(tree).__name__]
        if first.is_float or second.is_float:
            return Value(function(as_double(first), as_double(second)), pa.float64())
        if first.is_integer and second.is_integer:
            wide = max(_INT, first.type, second.type, key=lambda each: each.bit_width)
            return Value(function(first.expression.cast(wide), second.expression.cast(wide)), wide)
        return self._decimal_arithmetic(tree, first, second)

    def _decimal_arithmetic(self, tree: Tree, first: Value, second: Value) -> Value:
        one, two = as_decimal(first), as_decimal(second)
        if type(tree).__name__ == "Mul":
            precision, scale = one.type.precision + two.type.precision + 1, one.type.scale + two.type.scale
        else:
            scale = max(one.type.scale, two.type.scale)
            whole = max(one.type.precision - one.type.scale, two.type.precision - two.type.scale)
            precision = whole + scale + 1
        if precision > _DIGITS:
            raise refused(tree, f"its result may need more than {_DIGITS} digits, which Hive rounds")
        function = _ARITHMETIC[type(tree).__name__]
        return Value(function(one.expression, two.expression), pa.decimal128(precision, scale))

    def _quotient(self, tree: Tree) -> Value:
        first, second = self.value(tree.this), self.value(tree.expression)
        check_arithmetic(tree, first, second)
        if pa.types.is_decimal(first.type) or pa.types.is_decimal(second.type):
            raise refused(tree, "Hive releases round it differently")
        check_divisor(tree, second)
        return Value(pc.divide(as_double(first), as_double(second)), pa.float64())

    def _remainder(self, tree: Tree) -> Value:
        first, second = self.value(tree.this), self.value(tree.expression)
        check_arithmetic(tree, first, second)
        if not (first.is_integer and second.is_integer):
            raise refused(tree)
        check_divisor(tree, second)
        if second.constant == -1:  # Arrow's quotient of the least number is wrong
            raise refused(tree)
        wide = max(_INT, first.type, second.type, key=lambda each: each.bit_width)
        dividend, divisor = first.expression.cast(wide), second.expression.cast(wide)
        whole = pc.divide(dividend, divisor)  # rounded towards zero, as in Java
        return Value(pc.subtract(dividend, pc.multiply(whole, divisor)), wide)

    def _length(self, tree: Tree) -> Value:
        return Value(pc.utf8_length(self._text(tree)), _INT)

    def _trimmed(self, tree: Tree) -> Value:
        return Value(pc.utf8_trim(self._text(tree), characters=" "), pa.string())

    def _text(self, tree: Tree) -> pc.Expression:
        found = self.value(tree.this)
        if not found.is_text or found.is_char:
            raise refused(tree)
        return found.expression

    def _absolute(self, tree: Tree) -> Value:
        found = self.value(tree.this)
        check_arithmetic(tree, found)
        if found.is_integer:
            wide = max(_INT, found.type, key=lambda each: each.bit_width)
            return Value(pc.abs_checked(found.expression.cast(wide)), wide)
        return Value(pc.abs(found.expression), found.type)

    def _part_of_date(self, tree: Tree) -> Value:
        # sqlglot puts a conversion to a date around the argument.
        inner = tree.this.this if type(tree.this).__name__ == "TsOrDsToDate" else tree.this
        found = self.value(inner)
        if not pa.types.is_date32(found.type):
            raise refused(tree)
        hybrid = pc.less(found.expression, pc.scalar(_GREGORIAN))  # Hive 3.1 counts days by another calendar
        self.unclear.append(pc.coalesce(hybrid, pc.scalar(False)))
        function = {"Year": pc.year, "Month": pc.month, "Day": pc.day}[type(tree).__name__]
        return Value(function(found.expression).cast(_INT), _INT)


def _parts(tree: Tree) -> list[Tree]:
    """Return the names of a column and of the fields in it."""
    if type(tree).__name__ == "Dot":
        return [*_parts(tree.this), tree.expression]
    return [tree.args[name] for name in ("catalog", "db", "table", "this") if tree.args.get(name)]


_BINARY = ("this", "expression")
RULES: dict[str, tuple[Callable[[Translation, Tree], Value], Collection[str]]] = {
    "Column": (lambda self, tree: self.column(tree), ("this", "table", "db", "catalog")),
    "Dot": (lambda self, tree: self.column(tree), _BINARY),
    "Literal": (Translation._literal, ("this", "is_string")),
    "Boolean": (lambda _, tree: constant(bool(tree.this)), ("this",)),
    "Paren": (lambda self, tree: self.value(tree.this), ("this",)),
    "Cast": (lambda self, tree: self.cast(tree), ("this", "to")),
    "TryCast": (lambda self, tree: self.cast(tree), ("this", "to")),
    "Neg": (lambda self, tree: self.negated(tree), ("this",)),
    "Not": (lambda self, tree: boolean(~self.condition(tree.this)), ("this",)),
    "And": (lambda self, tree: boolean(self.condition(tree.this) & self.condition(tree.expression)), _BINARY),
    "Or": (lambda self, tree: boolean(self.condition(tree.this) | self.condition(tree.expression)), _BINARY),
    **dict.fromkeys(("EQ", "NEQ", "LT", "LTE", "GT", "GTE"), (Translation._compared, _BINARY)),
    "NullSafeEQ": (Translation._null_safe, _BINARY),
    "Between": (Translation._between, ("this", "low", "high")),
    "In": (lambda self, tree: self.is_in(tree), ("this", "expressions")),
    "Is": (Translation._is_, _BINARY),
    "Like": (Translation._like, (*_BINARY, "negate")),
    "Case": (Translation._case, ("ifs", "default")),
    "If": (Translation._if_, ("this", "true", "false")),
    "Coalesce": (Translation._coalesce, ("this", "expressions")),
    **dict.fromkeys(("Add", "Sub", "Mul"), (Translation._sum_or_product, _BINARY)),
    "Div": (Translation._quotient, _BINARY),
    "Mod": (Translation._remainder, _BINARY),
    "Length": (Translation._length, ("this",)),
    "Trim": (Translation._trimmed, ("this",)),
    "Abs": (Translation._absolute, ("this",)),
    **dict.fromkeys(("Year", "Month", "Day"), (Translation._part_of_date, ("this",))),
}
"""Class of sqlglot's expression -> its translation, and the arguments that the translation reads."""
_NOTES = ("typed", "safe", "is_null", "is_nvl")
"""Arguments that only record how other dialects would write the expression."""
INTEGERS = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": _INT, "BIGINT": _BIGINT}
_ARITHMETIC = {"Add": pc.add_checked, "Sub": pc.subtract_checked, "Mul": pc.multiply_checked}
"""An overflow is an error, because Hive's planners differ in whether they detect it."""
