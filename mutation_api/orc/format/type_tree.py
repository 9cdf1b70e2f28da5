"""The types in an ORC footer: is their list the tree of a file's columns?

Decoders build the tree by recursion, trust its numbers, and end the process where they do not fit. So it is
checked before a decoder sees it. Pure.

Source: orc_proto.proto (Type) and ORC's OrcUtils.isValidTypeTree.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of, numbers_in

__all__ = [
    "DEEPEST",
    "LARGEST_COUNT",
    "TypeKind",
    "TypeNode",
    "column_numbers",
    "last_within",
    "numbers_of_columns",
    "type_nodes",
]

DEEPEST = 100
"""Types within types that are read; decoders, and what is done with values, go down by recursion."""
LARGEST_COUNT = 100_000
"""Columns of a file, with those nested in others, that are read."""

_KIND, _SUBTYPES, _FIELD_NAMES, _PRECISION, _SCALE = 1, 2, 3, 5, 6
_MOST_DIGITS = 38


class TypeKind:
    """Codes of the kinds that are treated apart."""

    LIST = 10
    MAP = 11
    STRUCT = 12
    UNION = 13
    DECIMAL = 14
    LAST = 18
    MOMENTS = (9, 15, 18)
    """Timestamps, dates, and timestamps that know their zone."""


_CHILD_COUNTS = {TypeKind.LIST: (1, 1), TypeKind.MAP: (2, 2), TypeKind.UNION: (1, 127)}


class TypeNode(NamedTuple):
    """One type: the code of its kind, and the numbers and names of the types in it."""

    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def column_numbers(types: tuple[bytes, ...], name: str) -> frozenset[int]:
    """Numbers of a column of a file, of the columns nested in it and of those around it.

    Args:
        types: serialised types.
        name: ``row.x`` is field ``x`` of struct ``row``.

    Raises:
        KeyError: the file does not have this column.
        ValueError, IndexError: as :func:`type_nodes`.
    """
    nodes, around = type_nodes(types), [0]
    for part in name.split(".", 1):
        names = nodes[around[-1]].names
        if part not in names:
            raise KeyError(name)
        around.append(nodes[around[-1]].children[names.index(part)])
    return frozenset({*around, *range(around[-1], last_within(nodes, around[-1]) + 1)})


def last_within(nodes: Sequence[TypeNode], number: int) -> int:
    """Number of the last type that is nested in a type; its own if none is."""
    while nodes[number].children:
        number = nodes[number].children[-1]
    return number


@functools.lru_cache(maxsize=64)
def numbers_of_columns(types: tuple[bytes, ...], names: tuple[str, ...]) -> frozenset[int]:
    """The numbers of several columns; see :func:`column_numbers`."""
    return frozenset[int]().union(*(column_numbers(types, name) for name in names))


@functools.lru_cache(maxsize=64)
def type_nodes(types: tuple[bytes, ...]) -> tuple[TypeNode, ...]:
    """The types of a file, in pre-order.

    Args:
        types: serialised types.

    Raises:
        ValueError, IndexError: they are no tree in pre-order; one is deeper than DEEPEST, or has numbers or
            names that no type has.
    """
    if not types:
        raise ValueError("the footer has no types")
    if len(types) > LARGEST_COUNT:
        raise ValueError(f"{len(types)} types; at most {LARGEST_COUNT} are read")
    nodes = tuple(_node(each, number) for number, each in enumerate(types))
    if nodes[0].kind != TypeKind.STRUCT:
        raise ValueError(f"the rows are of kind {nodes[0].kind}, and no struct")
    open_ends = [iter((0,))]
    for number, node in enumerate(nodes):
        while (expected := next(open_ends[-1], None)) is None:
            open_ends.pop()
            if not open_ends:
                raise ValueError(f"type {number} is in no other type")
        if expected != number:
            raise ValueError(f"type {number} stands where type {expected} is named")
        open_ends.append(iter(node.children))
        if len(open_ends) > DEEPEST + 1:
            raise ValueError(f"type {number} is nested deeper than {DEEPEST} types, which are read")
    rest = next((child for children in open_ends for child in children), None)
    if rest is not None:
        raise ValueError(f"type {rest} is named, but there are {len(types)} types")
    return nodes


def _node(message: bytes, number: int) -> TypeNode:
    kind, children, names, digits, scale = 0, [], [], 0, 0
    for field, value in fields_of(message):
        if field == _KIND:
            kind = as_number(value)
        elif field == _SUBTYPES:
            children.extend(numbers_in(value) if isinstance(value, bytes) else [value])
        elif field == _FIELD_NAMES:
            names.append(as_bytes(value).decode())
        elif field == _PRECISION:
            digits = as_number(value)
        elif field == _SCALE:
            scale = as_number(value)
    if kind > TypeKind.LAST:
        raise ValueError(f"type {number} is of kind {kind}, which is not known")
    least, most = _CHILD_COUNTS.get(kind, (0, LARGEST_COUNT if kind == TypeKind.STRUCT else 0))
    if not least <= len(children) <= most:
        raise ValueError(f"type {number} of kind {kind} has {len(children)} types in it")
    if kind == TypeKind.STRUCT and not len(set(names)) == len(names) == len(children):
        raise ValueError(f"type {number} has {len(children)} fields with {len(set(names))} names")
    if kind == TypeKind.DECIMAL and not scale <= (digits or _MOST_DIGITS) <= _MOST_DIGITS:
        raise ValueError(f"type {number} is a decimal of {digits} digits, {scale} of them a fraction")
    return TypeNode(kind, tuple(children), tuple(names))
