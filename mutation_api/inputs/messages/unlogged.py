"""Values that a source did not log, and what a connector writes in place of them. Pure.

A connector has one placeholder, which it writes in the form of the column's type. Whatever the column and its
reader, :class:`Unlogged` is asked before a value is converted, so a reader has no rule of its own.

=======================  =============================================================================
type of the column       placeholder ``P``
=======================  =============================================================================
text, json, xml, …       ``P``
bytes                    base64 of ``P``, plain or for URLs, or its hexadecimal digits, or ``P`` itself
text[], json[], bytea[]  an array of one of these
uuid[]                   an array of the UUID (version 3) of ``P``
int[], bigint[], date[]  an array of the bytes of ``P``, which have a sign
hstore, other maps       ``{"P": "P"}``, as an object or as its text
=======================  =============================================================================

Source: ``UnchangedToastedPlaceholder`` and ``PostgresValueConverter`` of Debezium's connector for PostgreSQL;
``convertBinary`` in the value converters of those for Oracle, SQL Server, MySQL and MariaDB.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.messages.json_text import text_of

__all__ = ["Unlogged"]

_HEX = "hex:"
"""Begins a placeholder that is given by the hexadecimal digits of its bytes."""


@dataclass(frozen=True)
class Unlogged:
    """What a connector writes in place of a value that was not logged.

    ``placeholder``: the connector's ``unavailable.value.placeholder``.

    Raises:
        ConfigurationError: it is empty, or begins with ``hex:`` and does not go on with such digits.
    """

    placeholder: str

    def __post_init__(self) -> None:
        """Check it."""
        try:
            is_empty = not self._bytes
        except ValueError as error:
            raise ConfigurationError(
                f"unavailable value: got {self.placeholder!r}, expected hexadecimal digits behind {_HEX}"
            ) from error
        if is_empty:
            raise ConfigurationError("unavailable value: got an empty text, expected the placeholder's")

    @cached_property
    def texts(self) -> pa.StringArray:
        """All texts of values that stand for one that was not logged."""
        text = self._text
        whole = [[text], list(map(int, self._signed)), {text: text}]
        return pa.array([*sorted(self._scalars), *(found for each in whole if (found := text_of(each)))])

    def is_within(self, value: object) -> bool:
        """Return whether an array or object has a part, at any depth, that was not logged."""
        if isinstance(value, dict):
            return any(name in self._scalars or self.is_within(each) for name, each in value.items())
        if isinstance(value, list):
            return any(map(self.is_within, value))
        return isinstance(value, str) and value in self._scalars

    @cached_property
    def _bytes(self) -> bytes:
        if self.placeholder.startswith(_HEX):
            return bytes.fromhex(self.placeholder.removeprefix(_HEX))
        return self.placeholder.encode()

    @property
    def _text(self) -> str:
        return self._bytes.decode(errors="replace")

    @property
    def _signed(self) -> memoryview:
        return memoryview(self._bytes).cast("b")

    @cached_property
    def _scalars(self) -> frozenset[str]:
        """The placeholder in each form that a single value can have."""
        data = self._bytes
        encoded = [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
        digits = data.hex()
        of_bytes = uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
        bare = [each.rstrip("=") for each in encoded]
        return frozenset((self._text, *encoded, *bare, digits, digits.upper(), str(of_bytes)))
