r"""JSON in Spark, as variants. No other module calls Spark's functions of variants.

Spark's ``parse_json`` reads the text. ``from_json`` does not suffice: it converts a number through a double
if a text is wanted (``123456789012345678901234567890.10`` becomes ``1.2345678901234568E29``), ignores what
follows the message on its line, takes the last of two fields of one name, and does not distinguish a missing
field from one that is null. A variant keeps 38 digits exactly. A longer number, or one with an exponent and
more digits than a double has, is refused if it is the value of a column.
"""

from __future__ import annotations

import json

import pyspark.sql.functions as sf
from pyspark.sql import Column

__all__ = [
    "FIELDS",
    "field_of",
    "fields_of",
    "is_end",
    "is_null",
    "is_rough",
    "is_text",
    "kind_of",
    "objects_of",
    "strict_json",
    "text_of",
    "texts_of",
]

FIELDS = "map<string,variant>"
"""Spark's type of the fields of an object."""

_END = "\x01end of line"
_ROUGH_NUMBER = r"[0-9.]{18,}[eE]|[0-9.]{40,}|[eE][+-]?[0-9]{3,}"
_KIND_LENGTH = 7
"""Characters of ``schema_of_variant`` that name a value's kind; the fields of an object follow them."""


def strict_json(text: Column) -> Column:
    """An array of the JSON values in a text, separated by commas, and an end mark (:func:`is_end`).

    It is null if the text is not JSON values, or if more text follows, which ``parse_json`` would ignore.
    """
    end = f',"{json.dumps(_END)[1:-1]}"]'
    return sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(end))).try_cast("array<variant>")


def is_end(value: Column) -> Column:
    """Whether a value is the end mark of :func:`strict_json`."""
    return text_of(value) == _END


def is_rough(text: Column) -> Column:
    """Whether a text has a number that a variant may round, or make infinite."""
    return text.rlike(_ROUGH_NUMBER)


def fields_of(value: Column) -> Column:
    """The fields of an object, as a map; null if the value is not an object."""
    return value.try_cast(FIELDS)


def field_of(fields: Column, name: str) -> Column:
    """A field of :func:`fields_of`; null if it is missing or null."""
    return sf.try_element_at(fields, sf.lit(name))


def objects_of(value: Column) -> Column:
    """The objects in a JSON array, each as its fields; null if the value is not one."""
    return value.try_cast(f"array<{FIELDS}>")


def text_of(value: Column) -> Column:
    """The text of a JSON value: a string's own, a number's shortest, an object's JSON; null if null."""
    return value.try_cast("string")


def texts_of(value: Column) -> Column:
    """The texts of the values in a JSON array; null if the value is not one."""
    return value.try_cast("array<string>")


def is_text(value: Column) -> Column:
    """Whether a value is a JSON string."""
    return sf.schema_of_variant(value) == "STRING"


def is_null(value: Column) -> Column:
    """Whether a value is JSON's null; null if there is no value."""
    return sf.is_variant_null(value)


def kind_of(value: Column) -> Column:
    """The kind of a JSON value: STRING, BIGINT, DECIMAL, DOUBLE, BOOLEAN, VOID or the first characters of
    another one's; null if there is no value.
    """
    return sf.substring(sf.schema_of_variant(value), 1, _KIND_LENGTH)
