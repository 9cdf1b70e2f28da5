"""The clauses of the merges of ``merge_suite``, in the methods that this library and delta-rs share."""

from __future__ import annotations

from typing import Any

INSERT, INSERT_TWICE, DELETE, UPSERT = "insert", "insert by two clauses", "delete", "upsert"
ITEM, ORDER = "wr_item_sk", "wr_order_number"


def add_clauses(merge: Any, clauses: str) -> None:
    """Add one of the sets of clauses to a merge."""
    if clauses == DELETE:
        merge.when_matched_delete()
    if clauses == UPSERT:
        merge.when_matched_update_all()
    if clauses == INSERT_TWICE:
        merge.when_not_matched_insert_all(f"source.{ITEM} % 2 = 0")
    if clauses != DELETE:
        merge.when_not_matched_insert_all()
