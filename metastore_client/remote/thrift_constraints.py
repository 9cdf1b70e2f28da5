"""Constraints of tables as a server reports them.

Source: SQLNotNullConstraint, SQLCheckConstraint and SQLDefaultConstraint in Hive's hive_metastore.thrift.
"""

from __future__ import annotations

from collections.abc import Iterable

from metastore_client.model import ConstraintInfo, ConstraintKind
from metastore_client.remote.thrift_answers import Answer

__all__ = ["constraint_infos"]


def constraint_infos(
    not_null: Iterable[Answer], checks: Iterable[Answer], defaults: Iterable[Answer]
) -> tuple[ConstraintInfo, ...]:
    """The server's answers as values, ordered by kind, column and name. Raises InvalidAnswerError."""
    found = [_info(ConstraintKind.NOT_NULL, each, "nn_name", None) for each in not_null]
    found += [_info(ConstraintKind.CHECK, each, "dc_name", "check_expression") for each in checks]
    found += [_info(ConstraintKind.DEFAULT, each, "dc_name", "default_value") for each in defaults]
    return tuple(sorted(found, key=ConstraintInfo.order))


def _info(kind: ConstraintKind, answer: Answer, name: str, expression: str | None) -> ConstraintInfo:
    """One constraint; ``name`` and ``expression`` are the fields that hold them.

    Only a CHECK may be of no column, but of the table.
    """
    column = answer["column_name"]
    return ConstraintInfo(
        kind,
        answer[name].text_or_empty(),
        (column.text_or_empty() if kind is ConstraintKind.CHECK else column.text()).lower(),
        "" if expression is None else answer[expression].text(),
        answer["enable_cstr"].flag(),
    )
