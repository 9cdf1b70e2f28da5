"""UpdateSettings: what ``enable`` decided about a table, as properties of the table. Pure.

The properties are the only place where this is kept, so any machine can go on.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mutation_api.errors import ConfigurationError
from mutation_api.update.method import CaptureMethod

__all__ = ["PREFIX", "STATES", "ObjectNames", "UpdateSettings"]

PREFIX = "hive.mutation.update."
STATES = ("enabling", "enabled", "disabling")
_NAME_CHARACTERS = 30
_OTHERS = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True)
class ObjectNames:
    """Names of the objects in the source, made of the table's name and the identifier of the update."""

    log: str
    capture: str
    """Trigger function, and beginning of the names of triggers."""

    @classmethod
    def of(cls, source_table: str, identifier: str) -> ObjectNames:
        """Names that every database takes, at most 51 characters; ``identifier``: 8 hex digits."""
        table = _OTHERS.sub("_", source_table.rpartition(".")[2])[:_NAME_CHARACTERS]
        return cls(f"hm_{table}_{identifier}_log", f"hm_{table}_{identifier}")


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """The settings of one table.

    Attributes:
        identifier: 8 hex digits, of which the names of our objects in the source are made.
        state: one of STATES.
        source: the source's URL, without password.
        source_table: the source's name of the table, with its schema if it has one.
        key: columns that identify a row.
        method: how changes are captured.
        version_column: the growing column, for the methods that need one.
        overlap: how far below its greatest value the column is read again.
        compares_keys: whether deletes are found by a comparison of all keys (row-version).
        verifies_version: row-version methods: whether each extraction looks for versions below the bound.
        verifies_key: insert-only methods: whether the key must be the source's primary key, and an insert of
            a
            key that the target has with other values is refused.
        create_partitions: whether rows may create partitions of the target.
        is_loaded: whether the target was loaded by other means, after ``enable``; no first copy then.
        ignored_columns: columns of the source that the target lacks.
        null_for: columns whose values become NULL if they are not a date or a finite number of Hive.
        time_zone: the zone whose wall clock an instant becomes.
        enabled_at: when, ISO 8601 in UTC.
        fingerprint: that of the source when the table was enabled, as JSON; '' unless ``is_loaded``.
    """

    identifier: str
    state: str
    source: str
    source_table: str
    key: tuple[str, ...]
    method: CaptureMethod
    version_column: str = ""
    overlap: str = ""
    compares_keys: bool = False
    verifies_version: bool = True
    verifies_key: bool = True
    create_partitions: bool = True
    is_loaded: bool = False
    ignored_columns: tuple[str, ...] = ()
    null_for: tuple[str, ...] = ()
    time_zone: str = "UTC"
    enabled_at: str = ""
    fingerprint: str = ""

    @property
    def names(self) -> ObjectNames:
        """Names of the objects in the source."""
        return ObjectNames.of(self.source_table, self.identifier)

    def ignored_among(self, names: Collection[str]) -> set[str]:
        """Return which columns of the source are left out.

        An ignored name means the column that is spelled so, or, if there is none, the name in any case.
        """
        others = {name.lower() for name in self.ignored_columns if name not in names}
        return {name for name in names if name in self.ignored_columns or name.lower() in others}

    def to_properties(self) -> dict[str, str | None]:
        """The table's properties; None for those that are removed.

        No property is empty: Hive 2.3's compactor fails on a table with an empty one, which becomes null on
        its way to the job.
        """
        return {PREFIX + name: _text(value) or None for name, value in vars(self).items()}

    @classmethod
    def removed(cls) -> dict[str, str | None]:
        """The change of properties that removes all of them."""
        return {PREFIX + field.name: None for field in dataclasses.fields(cls)}

    @classmethod
    def of(cls, table: str, properties: Mapping[str, str]) -> UpdateSettings | None:
        """The settings that a table's properties hold; None if there are none.

        Raises ConfigurationError: the properties are not complete, or not ours.
        """
        found = {n.removeprefix(PREFIX): v for n, v in properties.items() if n.startswith(PREFIX)}
        if not found:
            return None
        try:
            values: dict[str, Any] = {
                field.name: _value(str(field.type), found[field.name])
                for field in dataclasses.fields(cls)
                if field.name in found
            }
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"table {table}: its properties {PREFIX}… are damaged ({error}); found {found}. Put them "
                "right "
                "with ALTER TABLE … SET TBLPROPERTIES, or remove all of them and the objects in the source"
            ) from error


def _text(value: object) -> str:
    if isinstance(value, CaptureMethod):
        return value.value
    if isinstance(value, tuple | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _value(kind: str, text: str) -> object:
    if kind == "CaptureMethod":
        return CaptureMethod(text)
    if kind == "bool":
        return {"true": True, "false": False}[text]
    if kind.startswith("tuple"):
        return tuple(map(str, json.loads(text)))
    return text
