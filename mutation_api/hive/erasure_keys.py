"""The keys of an erasure in the types of the tables' columns.

A key must be equal to a value that the column can have; otherwise nothing would be found, without a word.
So a key that the column cannot hold is refused by name: 300 for a tinyint, 1.555 for a decimal(10,2), a
string longer than a varchar. Keys are compared as in a merge by key (:mod:`mutation_api.merge.key_columns`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import HiveType, MisfitError, TypeFamily, parse_hive_type
from mutation_api.format.json_values import from_cells
from mutation_api.format.number_text import exact_decimal
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.key_columns import key_in_type
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.table.acid_table import AcidTable
from mutation_api.upkeep.erasure.file_search import SoughtKeys
from mutation_api.upkeep.erasure.report import hashed
from mutation_api.write.arrow_input import arrow_reader

_FAMILIES = (
    TypeFamily.BINARY,
    TypeFamily.DATE,
    TypeFamily.DECIMAL,
    TypeFamily.INTEGER,
    TypeFamily.TEXT,
)
_WIDEST = pa.decimal256(76, 38)
"""Holds each decimal of Hive of any scale."""


@dataclass(frozen=True)
class ErasedKeys:
    """Keys as they were given: distinct values of one type, none of them NULL, and their strings.

    ``column`` is the column of the rows that has them; '' if they were given as values.
    """

    column: str
    values: pa.Array
    texts: tuple[str, ...]

    @classmethod
    def of(cls, column: str, given: pa.Array) -> ErasedKeys:
        """Check the keys.

        Raises:
            ConfigurationError: If there are none.
            RecordValueError: If a key is NULL.
        """
        if given.null_count:
            row = pc.index(given.is_null(), True).as_py()
            where = f"column {column!r}, " if column else ""
            raise RecordValueError(
                f"keys: {where}row {row} is NULL (the first row is row 0): NULL is not a key and would match "
                "nothing. Remove it"
            )
        distinct = given.unique()
        if not len(distinct):
            raise ConfigurationError("keys: there are none, so nothing to erase. Is it the right file?")
        return cls(column, distinct, tuple(_text(value) for value in distinct.to_pylist()))

    def hashes(self, salt: bytes) -> tuple[str, ...]:
        """Return the salted hash of each key, sorted."""
        return tuple(sorted(hashed(text, salt) for text in self.texts))

    def digest(self, salt: bytes) -> str:
        """Return one salted hash of all keys in any order."""
        return hmac.new(salt, "".join(self.hashes(salt)).encode(), hashlib.sha256).hexdigest()


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def keys_by_table(keys: object, columns: Mapping[str, str | tuple[str, str]]) -> dict[str, ErasedKeys]:
    """Return the keys that are sought in each table.

    Args:
        keys: a sequence or array of values, or rows: any object with Arrow's stream interface.
        columns: the key column of each table, or a pair of it and the column of the rows that has its keys.
            By default that is the column with the same name, or the only column.

    Raises:
        ConfigurationError: If there are no keys, or the rows do not have a column.
        RecordLayoutError: If the values have no type of Arrow.
        RecordValueError: If a key is NULL.
    """
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        return dict.fromkeys(columns, ErasedKeys.of("", plain_array(keys)))
    if isinstance(keys, Sequence) and not isinstance(keys, str | bytes):
        try:
            return dict.fromkeys(columns, ErasedKeys.of("", pa.array(keys)))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise RecordLayoutError(f"keys: expected values of one type: {error}") from error
    rows = arrow_reader(keys, "keys").read_all()
    names = {name.lower(): name for name in rows.column_names}
    chosen = {table: _column(table, column, names) for table, column in columns.items()}
    found = {name: ErasedKeys.of(name, plain_array(rows.column(name))) for name in set(chosen.values())}
    return {table: found[name] for table, name in chosen.items()}


def _column(table: str, column: str | tuple[str, str], names: Mapping[str, str]) -> str:
    own, given = (column, None) if isinstance(column, str) else column
    wanted = own if given is None else given
    if given is None and own.lower() not in names and len(names) == 1:
        return next(iter(names.values()))
    if wanted.lower() not in names:
        raise ConfigurationError(
            f"table {table}: the rows of the keys have no column {wanted!r}; they have "
            f"{', '.join(names.values()) or 'none'}. Name the one that has its keys"
        )
    return names[wanted.lower()]


def sought_keys(table: AcidTable, column_name: str, keys: ErasedKeys) -> SoughtKeys:
    """Return the keys in the type of a table's column. Strings are parsed as the cells of a CSV file.

    Raises:
        RecordLayoutError: If the table has no such column, or keys cannot be of its type.
        RecordValueError: If the column cannot hold a key. The message has the key.
    """
    by_name = {column.name: column for column in table.all_columns}
    column = by_name.get(column_name.lower())
    if column is None:
        raise RecordLayoutError(
            f"table {table.full_name}: there is no column {column_name!r}; it has {', '.join(by_name)}"
        )
    kind = parse_hive_type(column.type)
    if kind.family not in _FAMILIES:
        raise RecordLayoutError(
            f"table {table.full_name}: key column {column.name!r} ({column.type}): keys can be integers, "
            "decimals, strings, binary or dates"
        )
    where = f"table {table.full_name}: key column {column.name!r} ({column.type})"
    given = keys.values
    if pa.types.is_string(given.type) and kind.family is not TypeFamily.TEXT:
        given = _parsed(given, kind, where)
    wanted = target_types(table)[column.name]
    values, is_lost = key_in_type(table.full_name, column.name, given, wanted)
    if is_lost.any():
        raise _unfit(where, keys.texts[int(is_lost.argmax())], "no value of the column is equal to it")
    if kind.family is TypeFamily.TEXT:
        _check_texts(values, kind, where)
    return SoughtKeys(table, column, KeyFilter(pa.table({column.name: _sorted(values)})))


def _sorted(values: pa.Array) -> pa.Array:
    return values.take(pc.array_sort_indices(values))


def _parsed(texts: pa.Array, kind: HiveType, where: str) -> pa.Array:
    if kind.family in (TypeFamily.INTEGER, TypeFamily.DECIMAL):
        return _numbers(texts, where)
    try:
        return from_cells(texts, kind)
    except MisfitError as misfit:
        raise _unfit(where, texts[misfit.row].as_py(), misfit.reason) from misfit


def _numbers(texts: pa.Array, where: str) -> pa.Array:
    found: list[Decimal] = []
    for text in texts.to_pylist():
        try:
            found.append(exact_decimal(text))
            pa.scalar(found[-1], _WIDEST)
        except (ArithmeticError, ValueError, pa.ArrowException) as error:
            raise _unfit(where, text, "it is not a number that the column can hold") from error
    return pa.array(found, _WIDEST)


def _check_texts(values: pa.Array, kind: HiveType, where: str) -> None:
    """Raise RecordValueError if a key is too long for the column, or is padded as no char is read."""
    limit = kind.length
    if limit:
        too_long = pc.greater(pc.utf8_length(values), limit)
        if pc.any(too_long).as_py():
            text = values.filter(too_long)[0].as_py()
            raise _unfit(where, text, f"the column holds at most {limit} characters")
    if kind.kind == "char":
        padded = pc.ends_with(values, " ")
        if pc.any(padded).as_py():
            raise _unfit(
                where, values.filter(padded)[0].as_py(), "a char has no blanks at its end; remove them"
            )


def _unfit(where: str, text: str, reason: str) -> RecordValueError:
    return RecordValueError(
        f"{where}: key {text!r} does not fit: {reason}. Nothing was erased. Correct the key, or erase "
        "the keys of this table by a run of its own"
    )
