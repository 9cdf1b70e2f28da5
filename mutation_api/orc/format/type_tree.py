"""A check that the types in an ORC footer form the tree of a file's columns.

Decoders build the tree by recursion, trust its numbers, and end the process if they do not fit. Therefore it
is checked before a decoder sees it. Pure.

Source: orc_proto.proto (Type) and ORC's OrcUtils.isValidTypeTree.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of, numbers_in

DEEPEST = 100
"""The maximum depth of types that are read. Decoders, and the code that handles values, use recursion."""
LARGEST_COUNT = 100_000
"""The maximum number of columns of a file, including nested ones."""

_KIND, _SUBTYPES, _FIELD_NAMES, _PRECISION, _SCALE = 1, 2, 3, 5, 6
_MOST_DIGITS = 38


class TypeKind:
    """The codes of the kinds that need special treatment."""

    LIST = 10
    MAP = 11
    STRUCT = 12
    UNION = 13
    DECIMAL = 14
    LAST = 18
    MOMENTS = (9, 15, 18)
    """Timestamps, dates, and timestamps with time zone."""


_CHILD_COUNTS = {TypeKind.LIST: (1, 1), TypeKind.MAP: (2, 2), TypeKind.UNION: (1, 127)}


class TypeNode(NamedTuple):
    """One type: the code of its kind, and the numbers and names of the types in it."""

    kind: int
    children: tuple[int, ...]
    names: tuple[str, ...]


@functools.lru_cache(maxsize=1024)
def column_numbers(types: tuple[bytes, ...], name: str) -> frozenset[int]:
    """Return the numbers of a column of a file, of the columns nested in it and of those around it.

    Args:
        types: serialised types.
        name: the column. ``row.x`` is field ``x`` of struct ``row``.

    Raises:
        KeyError: If the file does not have this column.
        ValueError, IndexError: See :func:`type_nodes`.
    """
    nodes, around = type_nodes(types), [0]
    for part in name.split(".", 1):
        names = nodes[around[-1]].names
        if part not in names:
            raise KeyError(name)
        around.append(nodes[around[-1]].children[names.index(part)])
    return frozenset({*around, *range(around[-1], last_within(nodes, around[-1]) + 1)})


def last_within(nodes: Sequence[TypeNode], number: int) -> int:
    """Return the number of the last type nested in a type; its own number if there is none."""
    while nodes[number].children:
        number = nodes[number].children[-1]
    return number


@functools.lru_cache(maxsize=64)
def numbers_of_columns(types: tuple[bytes, ...], names: tuple[str, ...]) -> frozenset[int]:
    """Return the numbers of several columns. See :func:`column_numbers`."""
    return frozenset[int]().union(*(column_numbers(types, name) for name in names))


@functools.lru_cache(maxsize=64)
def type_nodes(types: tuple[bytes, ...]) -> tuple[TypeNode, ...]:
    """Return the types of a file, in pre-order.

    Args:
        types: serialised types.

    Raises:
        ValueError, IndexError: If they are not a tree in pre-order, one is deeper than DEEPEST, or one has
            invalid numbers or names.
    """
    if not types:
        raise ValueError("the footer contains no types")
    if len(types) > LARGEST_COUNT:
        raise ValueError(f"there are {len(types)} types; at most {LARGEST_COUNT} are supported")
    nodes = tuple(_node(each, number) for number, each in enumerate(types))
    if nodes[0].kind != TypeKind.STRUCT:
        raise ValueError(f"the rows are of kind {nodes[0].kind}, which is not a struct")
    open_ends = [iter((0,))]
    for number, node in enumerate(nodes):
        while (expected := next(open_ends[-1], None)) is None:
            open_ends.pop()
            if not open_ends:
                raise ValueError(f"type {number} is not part of another type")
        if expected != number:
            raise ValueError(f"type {number} was found where type {expected} is expected")
        open_ends.append(iter(node.children))
        if len(open_ends) > DEEPEST + 1:
            raise ValueError(f"type {number} is nested deeper than {DEEPEST} types, which is the maximum")
    rest = next((child for children in open_ends for child in children), None)
    if rest is not None:
        raise ValueError(f"type {rest} is referred to, but there are only {len(types)} types")
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
        raise ValueError(f"type {number} is of kind {kind}, which is unknown")
    least, most = _CHILD_COUNTS.get(kind, (0, LARGEST_COUNT if kind == TypeKind.STRUCT else 0))
    if not least <= len(children) <= most:
        raise ValueError(f"type {number} of kind {kind} contains {len(children)} types")
    if kind == TypeKind.STRUCT and not len(set(names)) == len(names) == len(children):
        raise ValueError(f"type {number} has {len(children)} fields with {len(set(names))} names")
    if kind == TypeKind.DECIMAL and not scale <= (digits or _MOST_DIGITS) <= _MOST_DIGITS:
        raise ValueError(f"type {number} is a decimal of {digits} digits, {scale} of them in the fraction")
    return TypeNode(kind, tuple(children), tuple(names))
