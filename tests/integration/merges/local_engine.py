"""A random merge as a user of the local engine says it."""

from __future__ import annotations

import pyarrow as pa

from mutation_api import Transaction, first_by
from mutation_api.merge.local_merge import LocalMerge, local_merge
from tests.integration.merges.merge_cases import Source
from tests.integration.merges.merge_model import MATCHED, NOT_MATCHED, Merge, Rule
from tests.integration.merges.merge_tables import Table, arrow_table

_NAMES = {MATCHED: "when_matched", NOT_MATCHED: "when_not_matched"}


def begun_locally(transaction: Transaction, table: Table, merge: Merge, given: Source) -> LocalMerge:
    """The merge, begun; it has no condition besides its keys."""
    assert merge.on_too is None
    order = "ascending" if merge.first_by > 0 else "descending"
    found = local_merge(
        transaction,
        table.full_name,
        source=source_table(merge, given),
        on=list(merge.on),
        null_safe=merge.null_safe,
        on_duplicate=first_by(("seq", order)) if merge.first_by else "error",
        write_unchanged=merge.write_unchanged,
    )
    for rule in merge.rules:
        _add(found, rule)
    return found


def source_table(merge: Merge, given: Source) -> pa.Table:
    """The source; columns that nothing reads would be extra ones, and some names are in upper case."""
    texts = [merge.on_too.text] if merge.on_too else []
    texts += [rule.condition.text for rule in merge.rules if rule.condition]
    unread = [] if "source.op" in " ".join(texts) else ["op"]
    unread += [] if merge.first_by else ["seq"]
    rows = arrow_table(given.rows, given.types).drop_columns(unread)
    return rows.rename_columns([name.upper() if name in ("k", "v") else name for name in rows.column_names])


def _add(merge: LocalMerge, rule: Rule) -> None:
    """Add the clause."""
    name = f"{_NAMES.get(rule.when, 'when_not_matched_by_source')}_{rule.then}"
    when = None if rule.condition is None else rule.condition.arrow
    if rule.then == "delete":
        getattr(merge, name)(when)
    elif rule.assignments is None:
        getattr(merge, f"{name}_all")(when)
    else:
        getattr(merge, name)({column.upper(): e.arrow for column, e in rule.assignments.items()}, when)
