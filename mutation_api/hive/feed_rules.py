"""Rules of a change feed: its key columns, and the order in which it returns transactions. Pure.

The key columns are the same for all tables, or some for each table. The ids of each table ascend, because a
transaction that changes rows of another one has a greater id in their table.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

from mutation_api.errors import ConfigurationError, listed
from mutation_api.table.row_type import checked_names
from mutation_api.transaction.catalog import normal_full_name

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


_Group = tuple[str, int]
"""A transaction: ``("", its id)``, or if that is not known, a table and the id there."""


def in_order(
    ids: Mapping[str, Collection[int]], transactions: Mapping[str, Mapping[int, int]]
) -> list[tuple[int | None, dict[str, int]]]:
    """Group ids by transaction, and order these so that the ids of each table ascend.

    Args:
        ids: the ids by table.
        transactions: by table, the transactions of ids, as far as they are known.

    Returns:
        The transactions, None if unknown, with their id in each table.
    """
    groups: dict[_Group, dict[str, int]] = {}
    of_id: dict[tuple[str, int], _Group] = {}
    for name, found in ids.items():
        for id in found:
            txn = transactions[name].get(id)
            group = ("", txn) if txn is not None else (name, id)
            groups.setdefault(group, {})[name] = id
            of_id[name, id] = group
    ahead: dict[_Group, set[_Group]] = {group: set() for group in groups}
    behind: dict[_Group, set[_Group]] = {group: set() for group in groups}
    for name, found in ids.items():
        for one, other in itertools.pairwise(sorted(found)):
            ahead[of_id[name, other]].add(of_id[name, one])
            behind[of_id[name, one]].add(of_id[name, other])
    ready = [_rank(group) for group, first in ahead.items() if not first]
    heapq.heapify(ready)
    done: list[tuple[int | None, dict[str, int]]] = []
    left = set(groups)
    while left:
        # Transactions whose ids cross in two tables do not depend on each other: the older one is first.
        chosen = heapq.heappop(ready)[1] if ready else min(left, key=_rank)
        if chosen not in left:
            continue
        left.discard(chosen)
        done.append((chosen[1] if not chosen[0] else None, groups[chosen]))
        for each in behind[chosen]:
            ahead[each].discard(chosen)
            if not ahead[each] and each in left:
                heapq.heappush(ready, _rank(each))
    return done


def _rank(group: _Group) -> tuple[tuple[bool, int, str], _Group]:
    """Return a sort key that puts forgotten transactions first, because they are older."""
    return (not group[0], group[1], group[0]), group
