"""Conditions of a merge in SQL, translated to Arrow expressions over both sides.

sqlglot parses the SQL. The rules of :mod:`mutation_api.table.hive_sql` translate it, with the types of Arrow
columns and with Spark's rules where Spark and Hive differ. An expression is translated only if it certainly
has the same result in Spark, by its ANSI rules; everything else raises UnsupportedLocallyError, which names
the part.

====================  ====================================================================================
part                  accepted for
====================  ====================================================================================
=, <>, <, <=>, IN,    two strings; two integers or decimals with a common type of at most 38 digits; a
BETWEEN               double and a number; two dates, or a date and ``'2024-02-29'``; two timestamps; for
                      equality two booleans
LIKE, ESCAPE          a string and a literal
+, -, *, %, abs       integers and decimals whose result has at most 38 digits, doubles (except %); an
                      overflow of an integer or decimal is an error
CASE, IF, COALESCE    values of one type, or integers and decimals
CAST                  conversions that keep every value, and integers, booleans and dates to STRING
length, trim          strings
year, month, day      dates
IS [NOT] NULL         values of every type
====================  ====================================================================================

Left to Spark: floats with other numbers, decimals with doubles, strings with numbers, ``TIMESTAMP '…'``
(Spark compares it in the time zone of its session; ``TIMESTAMP_NTZ '…'`` has none), fields of structs, other
functions, comments, and strings with quotes or backslashes, whose meaning depends on Spark's settings.

A column that no side has is an error with either engine. Only names that may not be columns are left to
Spark: see ``_OF_SQL``, and fields of a struct column called ``source`` or ``target``. They are not SQL
variables: commands pass their work to a session in which no variables were declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import lazy_loader
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import ConfigurationError, RecordLayoutError, UnsupportedLocallyError
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.table.hive_sql import INTEGERS, RULES, Translation, check_is, parsed_sql
from mutation_api.table.sql_values import (
    COMPARISONS,
    NotTranslatedError,
    Value,
    as_double,
    as_type,
    boolean,
    common_decimal,
    comparison,
    constant,
    digits_of,
    double_comparison,
    exact_comparison,
    fits,
    is_exact,
    is_kept,
    null,
    plain_value,
    refused,
    written_timestamp,
)

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

sqlglot = lazy_loader.load("sqlglot", suppress_warning=True)

Types = Mapping[str, pa.DataType]

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.A)
_BLANKS = " \t\r\n"
_GRAMMAR = frozenset(
    "all and as between case distinct div else end escape exists false from in interval is like "  # noqa: SIM905
    "not null or then true unknown when".split()
)
"""The words that are not names of columns, even if a column has that name."""
_BEFORE_PARENTHESES = frozenset(
    "and between case else in not or then when abs cast char_length character_length coalesce day "  # noqa: SIM905
    "dayofmonth if ifnull length mod month nvl trim year".split()
)
"""The words, and the functions, that may stand before an opening parenthesis."""
_SIGNS = frozenset(
    ("(", ")", ",", ".", "=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "!")
)
_BEFORE_STRINGS = frozenset(("date", "timestamp", "timestamp_ntz"))
"""The words that turn the string after them into a literal."""
_OTHER_RULES = frozenset(
    {"CHAR", "NCHAR", "VARCHAR", "NVARCHAR", "BPCHAR", "ISNULL", "NOTNULL", "UNKNOWN", "SEMICOLON"}
)
"""Kinds of sqlglot's tokens whose meaning differs in Spark, or whose tree lacks a part, such as a length."""
_OF_SQL = re.compile(r"(?:current|local|session|system)_?[a-z0-9_]*|user|grouping__id", re.A)
"""Matches names that may be functions without parentheses if no column has this name. Each new Spark release
adds some."""
_SUBSTITUTED = "${"
"""The start of a variable that Spark replaces with its value, even within strings."""
_COMPARED = frozenset((*COMPARISONS, "NullSafeEQ", "Between", "In", "Is", "Like", "Escape"))
_LOOSE = frozenset((*_COMPARED, "Not", "And", "Or"))
"""Classes of sqlglot that compare values, and those that cannot be compared without parentheses."""
_PARTS = frozenset((*RULES, "Null", "Escape", "Identifier", "DataType", "DataTypeParam", "TsOrDsToDate"))
"""Classes of sqlglot that may occur."""
_OPERATORS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_DIGITS = 38
"""The maximum number of digits of Spark's decimals."""
_TIMES = (pa.timestamp("us"), pa.timestamp("ns"))


def parsed_condition(text: str, what: str = "the condition") -> Tree:
    """Return the syntax tree of a condition. Names and types are not checked.

    Raises:
        UnsupportedLocallyError: If only Spark can interpret it. ``what`` is its name in the message.
    """
    where, separator, noun = what.rpartition(": ")
    start = f"{where}{separator}only Spark can interpret {noun} {text!r}"
    try:
        tree = parsed_sql(_plain(text, start), "it")
        check_is(text, "it")
        for name in _checked_names(tree, start):
            if _WORD.fullmatch(name.this):
                name.set("quoted", False)  # messages have the names without backticks
    except UnsupportedLocallyError:
        raise
    except (ConfigurationError, RecursionError) as error:
        raise UnsupportedLocallyError(f"{start}: {error}") from error
    return tree


def parsed_column(text: str) -> tuple[str | None, str] | None:
    """Return the side, if stated, and the name of a column, or None if the string is something else."""
    try:
        tree = parsed_condition(text)
    except UnsupportedLocallyError:
        return None
    return _place(tree) if type(tree).__name__ == "Column" else None


def resolved_condition(
    text: str,
    source: Types,
    target: Types,
    preferred: Sequence[str] = (SOURCE, TARGET),
    what: str = "the condition",
    *,
    is_condition: bool = True,
    is_flat: bool = False,
) -> tuple[pc.Expression, frozenset[str]]:
    """Return the condition over the structs ``source`` and ``target``, and the sides that it reads.

    Args:
        text: the condition.
        source: types of the source columns by name, in lower case.
        target: types of the table's columns.
        preferred: the sides on which to look for a column without a side, in this order.
        what: name of the condition in messages.
        is_condition: False for an expression of any type.
        is_flat: True for an expression over the columns of one side, without a struct.

    Raises:
        UnsupportedLocallyError: If only Spark can interpret a part of it, or if a name may not be a column.
        RecordLayoutError: If a column does not exist, with Spark either, or if it is not a condition.
    """
    tree = parsed_condition(text, what)
    types, named = {SOURCE: source, TARGET: target}, f"{what} {text!r}"
    places = [_place(each) for each in tree.find_all(sqlglot.exp.Column)]
    sides = {place: _side(named, *place, types, preferred) for place in places}
    translation = _Conditions(named, types, sides, is_flat)
    try:
        found = translation.value(tree)
    except NotTranslatedError as error:
        why = f": {error.why}" if error.why else ""
        raise UnsupportedLocallyError(f"{named}: only Spark can interpret {error.part}{why}") from error
    except RecursionError:
        raise UnsupportedLocallyError(f"{named}: it is nested too deeply for the local engine") from None
    if is_condition and not pa.types.is_boolean(found.type):
        raise RecordLayoutError(f"{named} must be boolean, got {found.type}")
    return found.expression, frozenset(sides.values())


def _plain(text: str, start: str) -> str:
    """Return the SQL with backticks around the names of columns, which may be words of sqlglot's grammar.

    Raises UnsupportedLocallyError for a token that sqlglot and Spark may read differently.
    """

    def refuse(part: str) -> NoReturn:
        raise UnsupportedLocallyError(f"{start}, because of {part}")

    for part in (_SUBSTITUTED, "\\", '"'):
        if part in text:
            refuse(part)
    try:
        tokens = sqlglot.tokenize(text, dialect="hive")
    except sqlglot.errors.SqlglotError as error:
        raise UnsupportedLocallyError(f"{start}: {str(error).splitlines()[0]}") from error
    if not tokens:
        raise UnsupportedLocallyError(f"{start}, because it is empty")
    pieces, end, before = [], 0, ""
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        kind, following = token.token_type.name, "" if after is None else after.token_type.name
        if token.start < end:  # sqlglot makes several tokens of a number such as 5L
            continue
        gap, raw = text[end : token.start], text[token.start : token.end + 1]
        if gap.strip(_BLANKS):
            refuse(repr((gap + raw).strip()))
        if (why := _odd(raw, kind, before, following)) is not None:
            refuse(why)
        is_name = _WORD.fullmatch(raw) is not None and raw.lower() not in _GRAMMAR
        if is_name and following not in ("L_PAREN", "STRING") and before != "ALIAS":
            raw = f"`{raw}`"
        pieces += [gap, raw]
        end, before = token.end + 1, kind
    if text[end:].strip(_BLANKS):
        refuse(repr(text[end:].strip()))
    return "".join(pieces)


def _odd(raw: str, kind: str, before: str, following: str) -> str | None:
    """Return the part of the condition if this token may mean something else in Spark, or None."""
    word = raw.lower()
    is_word = _WORD.fullmatch(raw) is not None
    is_called = following == "L_PAREN" and (is_word or kind == "IDENTIFIER") and before != "ALIAS"
    if is_called and word not in _BEFORE_PARENTHESES:
        return f"the function {raw}"
    if is_word:
        if following == "STRING" and word not in _GRAMMAR and word not in _BEFORE_STRINGS:
            return f"{raw!r} before a string"
        is_odd = kind in _OTHER_RULES or (word == "from" and before != "DISTINCT")
    else:
        is_odd = kind not in ("NUMBER", "STRING", "IDENTIFIER") and raw not in _SIGNS
    return repr(raw) if is_odd else None


def _checked_names(tree: Tree, start: str) -> Iterator[Tree]:
    """Yield the names in a tree. Raise UnsupportedLocallyError for a part that has no rule."""
    for part in tree.walk():
        kind = type(part).__name__
        if kind not in _PARTS:
            raise UnsupportedLocallyError(f"{start}, because of {_sql(part)}")
        if kind == "Identifier":
            if not part.args.get("quoted"):  # a word of the grammar, see _plain
                raise UnsupportedLocallyError(f"{start}, because of {part.this!r}")
            yield part
        if kind in _COMPARED:
            values = [part.args.get(name) for name in ("this", "expression", "low", "high")]
            for value in values if kind != "Escape" else ():
                if value is not None and type(value).__name__ in _LOOSE:
                    raise UnsupportedLocallyError(f"{start}: put {_sql(value)} in parentheses")
        if kind in ("Column", "Dot"):
            _place(part, start)


def _sql(tree: Tree) -> str:
    return str(tree.sql(dialect="hive")).replace("`", "")


def _place(column: Tree, start: str = "") -> tuple[str | None, str]:
    """Return the side, if stated, and the name of a column. Raise UnsupportedLocallyError for other names."""
    table, name = column.args.get("table"), column.name.lower()
    side = table.name.lower() if table else None
    if type(column).__name__ == "Dot" or column.args.get("db") or side not in (None, SOURCE, TARGET):
        raise UnsupportedLocallyError(f"{start}, because of the name {_sql(column)}")
    return side, name


def _side(
    what: str, given: str | None, column: str, types: Mapping[str, Types], preferred: Sequence[str]
) -> str:
    """Return the side that has the column."""
    wanted = preferred if given is None else (given,)
    side = next((side for side in wanted if column in types[side]), None)
    if side is not None:
        return side
    if given is None:
        name, is_for_spark = column, _OF_SQL.fullmatch(column) is not None
    else:
        name = f"{given}.{column}"
        is_for_spark = any(given in names for names in types.values())
    known = " and ".join(f"{each} ({', '.join(types[each])})" for each in preferred)
    if is_for_spark:
        raise UnsupportedLocallyError(
            f"{what}: only Spark can resolve {name!r}, which is not a column of {known}"
        )
    raise RecordLayoutError(f"{what} cannot be resolved over {known}: column {name} does not exist")


class _Conditions(Translation):
    """The translation of a condition over both sides."""

    def __init__(
        self,
        what: str,
        types: Mapping[str, Types],
        sides: Mapping[tuple[str | None, str], str],
        is_flat: bool,
    ) -> None:
        super().__init__({}, ())
        self._is_flat = is_flat
        self._what = what
        self._types = types
        self._sides = sides

    def value(self, tree: Tree) -> Value:
        kind = type(tree).__name__
        if kind == "Null":
            return Value(pc.scalar(pa.scalar(None)), pa.null())
        return self._escaped(tree) if kind == "Escape" else super().value(tree)

    def column(self, tree: Tree) -> Value:
        given, name = _place(tree)
        side = self._sides[given, name]
        field = pc.field(name) if self._is_flat else pc.field(side, name)
        return plain_value(field, self._types[side][name])

    def cast(self, tree: Tree) -> Value:
        inner, kind = tree.this, tree.args["to"].this.name
        digits = [int(each.name) for each in tree.args["to"].expressions]
        if type(inner).__name__ == "Literal":
            if kind == "TIMESTAMP":
                raise refused(
                    tree,
                    "Spark compares it in its session's time zone. Write TIMESTAMP_NTZ before the string",
                )
            if kind == "TIMESTAMPNTZ" and inner.is_string:
                return constant(written_timestamp(inner.this, tree), _TIMES[0])
            if kind == "DATE" or (kind == ("DECIMAL" if inner.is_string else "DOUBLE")):
                return super().cast(tree)
        value, wanted = self.value(inner), _wanted_type(kind, digits)
        if wanted is None:
            raise refused(tree)
        if pa.types.is_null(value.type):
            return null(wanted)
        if value.type == wanted:
            return value
        if value.is_integer and fits(value.constant, wanted):
            return constant(value.constant, wanted)
        if value.is_integer and wanted == pa.float64():
            return Value(as_double(value), wanted)
        if not is_kept(value, wanted):
            raise refused(tree, f"the conversion from {value.type} may fail or change the value")
        return Value(as_type(value, wanted), wanted)

    def negated(self, tree: Tree) -> Value:
        found = super().negated(tree)
        if type(tree.this).__name__ == "Literal" and found.constant == -(
            2**31
        ):  # Spark reads the sign with it
            return constant(found.constant, pa.int32())
        return found

    def is_in(self, tree: Tree) -> Value:
        values = [self.value(each) for each in (tree.this, *tree.expressions)]
        if any(pa.types.is_decimal(each.type) for each in values):
            digits = [digits_of(each) for each in values if is_exact(each.type)]
            if common_decimal(digits) is None:  # Spark compares all of them in one type
                raise refused(tree, f"it needs more than {_DIGITS} digits")
        return super().is_in(tree)

    def _escaped(self, tree: Tree) -> Value:
        like, escape = tree.this, tree.expression
        if type(like).__name__ != "Like" or not (escape.is_string and len(escape.this) == 1):
            raise refused(tree)
        value, pattern = self.value(like.this), self.value(like.expression).constant
        if not value.is_text or not isinstance(pattern, str) or escape.this in "%_":
            raise refused(tree)
        sign = re.escape(escape.this)
        if not re.fullmatch(f"(?:[^{sign}]|{sign}[%_{sign}])*", pattern, re.S):
            raise refused(tree, "an escape must stand before %, _ or itself")
        written = re.sub(
            f"{sign}(.)", lambda found: found[1] if found[1] == escape.this else f"\\{found[1]}", pattern
        )
        found = pc.match_like(value.expression, written)
        return boolean(~found if like.args.get("negate") else found)

    def _chosen(self, tree: Tree, branches: list[tuple[Tree, Tree]], default: Tree | None) -> Value:
        return super()._chosen(tree, branches, default or sqlglot.exp.Null())

    def _alike(self, trees: list[Tree], whole: Tree) -> list[Value]:
        values = [self.value(each) for each in trees]
        kinds = {each.type for each in values if not pa.types.is_null(each.type)}
        wanted = next(iter(kinds), None)
        if kinds and all(map(is_exact, kinds)):
            if all(map(pa.types.is_integer, kinds)):
                wanted = max(kinds, key=lambda each: each.bit_width)
            elif len(kinds) > 1:
                wanted = common_decimal([digits_of(each) for each in values if is_exact(each.type)])
        elif len(kinds) > 1:
            wanted = None
        if wanted is None:
            raise refused(whole, "its values have no common type here")
        return [
            null(wanted) if pa.types.is_null(each.type) else Value(as_type(each, wanted), wanted)
            for each in values
        ]

    def _comparison(self, name: str, first: Value, second: Value, tree: Tree) -> pc.Expression:
        if pa.types.is_null(first.type) or pa.types.is_null(second.type):
            return null(pa.bool_()).expression
        kinds = (first.type, second.type)
        try:
            if all(map(is_exact, kinds)):
                return exact_comparison(name, first, second, tree)
            if first.is_number and second.is_number and pa.float64() in kinds:
                return double_comparison(name, first, second)
            if (
                (first.is_text and second.is_text)
                or all(kind in _TIMES for kind in kinds)
                or (all(map(pa.types.is_boolean, kinds)) and name in ("EQ", "NEQ"))
                or (pa.types.is_date32(kinds[0]) and (second.is_text or kinds[1] == kinds[0]))
                or (pa.types.is_date32(kinds[1]) and first.is_text)
            ):
                return comparison(name, first, second, tree)
            why = ""
        except NotTranslatedError as error:
            why = f": {error.why}" if error.why else ""
        other = f"type {second.type}" if second.constant is None else repr(second.constant)
        raise UnsupportedLocallyError(
            f"{self._what}: only Spark can compare {_sql(tree.this)!r}, of type {first.type}, "
            f"with {other} by {_OPERATORS[name]}{why}"
        )

    def _decimal_arithmetic(self, tree: Tree, first: Value, second: Value) -> Value:
        found = super()._decimal_arithmetic(tree, first, second)
        if found.type.precision == _DIGITS and (first.is_integer or second.is_integer):
            raise refused(tree, f"its result may need more than {_DIGITS} digits, which Spark rounds")
        return found


def _wanted_type(kind: str, digits: list[int]) -> pa.DataType | None:
    """Return the type of a CAST, or None if such casts are left to Spark."""
    if kind == "DECIMAL":
        precision, scale = (*digits, *(10, 0)[len(digits) :])
        return pa.decimal128(precision, scale) if 0 <= scale <= precision <= _DIGITS else None
    others = {
        **INTEGERS,
        "TEXT": pa.string(),
        "DATE": pa.date32(),
        "BOOLEAN": pa.bool_(),
        "DOUBLE": pa.float64(),
    }
    return None if digits else others.get(kind)
