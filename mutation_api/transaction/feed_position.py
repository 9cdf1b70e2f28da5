"""Positions of change feeds: the ids of each table that a consumer has seen.

A position is the list of these ids, never a number: an id below the highest one may commit later. A change is
new if it is visible now and was not visible then.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from metastore_client.valid_ids import RangeValidity, ValidIdList, ValidTxnList, ValidWriteIdList
from mutation_api.errors import ConfigurationError, DirectoryStateError, listed
from mutation_api.table.acid_table import SnapshotView
from mutation_api.transaction.past_snapshot import check_as_of, check_history, ids_of_point

BEGINNING, NOW = "beginning", "now"

Since = str | datetime.datetime
"""Where changes begin: after a position, at ``"beginning"``, ``"now"``, or at a moment with a time zone."""


def changes_position(view: SnapshotView, *tables: str) -> str:
    """Return the position of a change feed that has seen all changes that a snapshot sees.

    Args:
        view: an open snapshot, or a transaction, whose own changes the feed has not seen.
        tables: its tables, as ``database.table``.

    Raises:
        ConfigurationError: If no table is given, or the view does not have it.
        TransactionStateError: If the view is not open.
    """
    if not tables:
        raise ConfigurationError("a position needs the name of at least one table")
    names = [view.table(name).full_name for name in tables]
    return position_text({name: committed_ids(view, name) for name in names})


def committed_ids(view: SnapshotView, name: str) -> ValidIdList:
    """Return the ids of a table that a view sees, without that of its own transaction, which may abort."""
    found, table = view.valid_ids(name), view.table(name)
    own = table.write_id if table.version.uses_write_ids else table.txn_id
    return found if own is None else found.without([own])


def position_text(ids: Mapping[str, ValidIdList]) -> str:
    """Return the ids that were seen of each table as a position."""
    texts = {
        name: each.to_text() if isinstance(each, ValidTxnList | ValidWriteIdList) else ""
        for name, each in sorted(ids.items())
    }
    return _as_json(texts)


def positions_of_tables(position: str) -> dict[str, str]:
    """Return, for each table of a position, its part, which is itself a position."""
    return {name: _as_json({name: text}) for name, text in json.loads(position)["tables"].items()}


def joined_positions(positions: Iterable[str]) -> str:
    """Return the position of all tables of some positions."""
    tables: dict[str, str] = {}
    for each in positions:
        tables |= json.loads(each)["tables"]
    return _as_json(tables)


def _as_json(tables: Mapping[str, str]) -> str:
    return json.dumps({"tables": tables}, separators=(",", ":"))


def ids_seen(view: SnapshotView, names: Sequence[str], since: Since) -> dict[str, ValidIdList]:
    """Return the ids that a consumer has seen of each table.

    Args:
        view: an open snapshot or transaction.
        names: full names of its tables.
        since: a position of these tables and possibly others, BEGINNING, NOW, or a moment.

    Raises:
        ConfigurationError: If it is not a position, lacks a table, or is newer than a table.
        DirectoryStateError: If the files no longer show which ids existed at that moment.
    """
    now = {name: committed_ids(view, name) for name in names}
    if since == NOW:
        return now
    if since == BEGINNING:
        return {name: each.up_to(0) for name, each in now.items()}
    if isinstance(since, datetime.datetime):
        points = check_as_of(since, list(now))
        return {name: ids_of_point(view, name, point) for name, point in points.items()}
    try:
        texts = dict(json.loads(since)["tables"])
        given = {name: _parsed(text, now[name]) for name, text in texts.items() if name in now}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"not a position of a change feed: {str(since)[:200]!r}. Pass the position of an earlier feed, "
            '"beginning", "now", or a datetime with a time zone'
        ) from error
    if missing := sorted(now.keys() - given.keys()):
        raise ConfigurationError(
            f"the position has no table {listed(missing)}: it is one of {listed(sorted(texts))}. Read new "
            'tables in a separate feed, which begins with since="beginning"'
        )
    for name, each in given.items():
        if each.high_watermark > now[name].high_watermark:
            raise ConfigurationError(
                f"the position is ahead of table {name}: it has seen id {each.high_watermark}, the table has "
                f"{now[name].high_watermark}. Was the table dropped and created again, or restored?"
            )
    return dict(given)


def parsed_position(position: str, table: str, now: ValidIdList) -> ValidIdList | None:
    """Return the ids that a consumer has seen of a table; None if its position is none of a feed yet.

    Args:
        position: the position of the consumer.
        table: the full name of the table.
        now: the ids that a snapshot sees now.
    """
    try:
        return _parsed(json.loads(position)["tables"][table], now)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _parsed(text: str, now: ValidIdList) -> ValidIdList:
    is_of_write_ids = isinstance(now, ValidWriteIdList)
    return ValidWriteIdList.parse(text) if is_of_write_ids else ValidTxnList.parse(text)


def ids_between(
    view: SnapshotView,
    name: str,
    since: Since,
    until: Since | None,
    is_kept: Callable[[str, str], bool] | None = None,
) -> tuple[ValidIdList | None, ValidIdList, bool]:
    """Return the ids of a table at the beginning and at the end of its changes.

    Args:
        view: an open snapshot or transaction.
        name: the full name of the table.
        since: see :func:`ids_seen`.
        until: the same. If None, the view.
        is_kept: see :func:`~mutation_api.transaction.past_snapshot.check_history`.

    Returns:
        The ids that were seen, None if ``since`` is BEGINNING, and those that are seen at the end; and True
        if only directories that have since been replaced show the changes.

    Raises:
        ConfigurationError: See :func:`ids_seen` and :func:`check_order`.
        DirectoryStateError: If the files no longer have all changes, or do not separate them from those after
            the end.
    """
    before = ids_seen(view, (name,), since)
    after = ids_seen(view, (name,), NOW if until is None else until)
    check_order(name, before[name], after[name])
    is_whole = since == BEGINNING
    replaced = () if is_whole else check_complete(view, before, is_kept=is_kept)
    if is_whole or not view.table(name).version.has_row_ids:
        check_history(view, after)
    return None if is_whole else before[name], after[name], bool(replaced)


def check_complete(
    view: SnapshotView,
    seen: Mapping[str, ValidIdList],
    first: str = "",
    is_kept: Callable[[str, str], bool] | None = None,
) -> tuple[str, ...]:
    """Raise DirectoryStateError if the files no longer have all changes since a position.

    The view's lock, or that of a hold, keeps the files from then on. A compaction may still add directories.

    ``first`` is a further step before starting over, for the message. For ``is_kept`` and the result see
    :func:`~mutation_api.transaction.past_snapshot.check_history`.
    """
    try:
        return check_history(view, seen, is_kept)
    except DirectoryStateError as error:
        raise DirectoryStateError(
            f"changes since this position are no longer complete: {error}. To start over, {first}read the "
            'tables as they are (since="beginning") and continue from the position after it'
        ) from error


def check_order(name: str, before: ValidIdList, after: ValidIdList) -> None:
    """Raise ConfigurationError if some ids of a table were seen at one position but not at a later one."""
    lost = unseen_id(before, after)
    if lost is not None:
        raise ConfigurationError(
            f"table {name}: until is not after since: since has seen id {lost}, until has not. Swap them"
        )


def unseen_id(before: ValidIdList, after: ValidIdList) -> int | None:
    """Return an id that was seen at one position but not at another one; None if there is none."""
    lost = next((id for id in after.exceptions if before.is_valid(id)), None)
    above = before.range_validity(after.high_watermark + 1, before.high_watermark)
    is_ahead = before.high_watermark > after.high_watermark and above is not RangeValidity.NONE
    return before.high_watermark if lost is None and is_ahead else lost
