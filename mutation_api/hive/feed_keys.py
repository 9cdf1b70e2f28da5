"""The key columns of a change feed: the same ones for all of its tables, or some for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from mutation_api.errors import ConfigurationError, listed
from mutation_api.table.row_type import checked_names
from mutation_api.transaction.catalog import normal_full_name

__all__ = ["FeedKeys", "Images", "check_images", "keys_by_table", "parsed_keys"]

FeedKeys = Sequence[str] | Mapping[str, Sequence[str]]
"""Names of key columns of all tables, or by ``database.table``."""

Images = Literal["all", "keys"]
"""The columns that are read of rows as they were before a delete or an update: all, or only the keys."""


def keys_by_table(on: FeedKeys | None, tables: Sequence[str], what: str) -> dict[str, tuple[str, ...]]:
    """Return the key columns of each table that has some.

    Args:
        on: the names. If None, no table has any.
        tables: the tables of the feed.
        what: the name of the argument in messages.

    Raises:
        ConfigurationError: If ``on`` names a table that is not one of the feed.
        RecordLayoutError: If something other than names was passed.
    """
    names = [normal_full_name(each) for each in tables]
    if not isinstance(on, Mapping):
        keys = () if on is None else tuple(checked_names(on, what))
        return dict.fromkeys(names, keys) if keys else {}
    found = {normal_full_name(name): tuple(checked_names(keys, what)) for name, keys in on.items()}
    if unknown := sorted(found.keys() - set(names)):
        raise ConfigurationError(f"{what} names {listed(unknown)}, but the feed has {listed(sorted(names))}")
    return {name: keys for name, keys in found.items() if keys}


def check_images(images: Images, on: Mapping[str, Sequence[str]], tables: Sequence[str], what: str) -> None:
    """Raise ConfigurationError if ``images`` is invalid, or ``"keys"`` and a table has no keys.

    Args:
        images: the value.
        on: the result of :func:`keys_by_table`.
        tables: the tables of the feed.
        what: the name of the argument in messages.
    """
    if images not in get_args(Images):
        raise ConfigurationError(f"{what}={images!r}: expected 'all' or 'keys'")
    missing = [name for name in map(normal_full_name, tables) if name not in on]
    if images == "keys" and missing:
        raise ConfigurationError(
            f"{what}='keys' needs the key columns of each table: name those of {listed(sorted(missing))} "
            "with on"
        )


def parsed_keys(texts: Sequence[str]) -> FeedKeys:
    """Return keys from strings such as ``id,line``, or ``db.table=id,line`` for one table.

    Raises:
        ConfigurationError: If there are both forms, several of the first, or a table occurs twice.
    """
    keys: dict[str, list[str]] = {}
    for text in texts:
        table, _, names = text.rpartition("=")
        if table.strip().lower() in keys or bool(table) != bool(texts[0].rpartition("=")[0]):
            raise ConfigurationError(
                f"on={text!r}: pass columns once for all tables (A,B), or once for each table (DB.TABLE=A,B)"
            )
        keys[table.strip().lower()] = [name.strip() for name in names.split(",") if name.strip()]
    return keys.get("", keys)
