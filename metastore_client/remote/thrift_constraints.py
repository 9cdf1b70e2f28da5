"""Constraints of tables as a server reports them.

Source: SQLNotNullConstraint, SQLCheckConstraint and SQLDefaultConstraint in Hive's hive_metastore.thrift.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metastore_client.model import ConstraintInfo, ConstraintKind

__all__ = ["constraint_infos"]


def constraint_infos(
    not_null: Iterable[Any], checks: Iterable[Any], defaults: Iterable[Any]
) -> tuple[ConstraintInfo, ...]:
    """The server's answers as values, ordered by kind, column and name."""
    found = [_info(ConstraintKind.NOT_NULL, each, each.nn_name, "") for each in not_null]
    found += [_info(ConstraintKind.CHECK, each, each.dc_name, each.check_expression) for each in checks]
    found += [_info(ConstraintKind.DEFAULT, each, each.dc_name, each.default_value) for each in defaults]
    return tuple(sorted(found, key=ConstraintInfo.order))


def _info(kind: ConstraintKind, raw: Any, name: str, expression: str) -> ConstraintInfo:
    return ConstraintInfo(
        kind, name or "", (raw.column_name or "").lower(), expression, bool(raw.enable_cstr)
    )
