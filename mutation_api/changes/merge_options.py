"""MergeOptions: the options of a merge besides its clauses."""

from __future__ import annotations

from dataclasses import dataclass

from mutation_api.changes.duplicates import DUPLICATES_SHOWN_DEFAULT, FirstBy

__all__ = ["COLLECTED_KEYS_DEFAULT", "MergeOptions"]

COLLECTED_KEYS_DEFAULT = 2_000_000
"""Maximum number of source rows whose keys the driver collects, to read the table by them."""


@dataclass(frozen=True)
class MergeOptions:
    """See :func:`mutation_api.changes.spark_merge.merge.merge_into`.

    ``on_duplicate`` None: duplicates are an error. ``count_by`` is in lower case.
    """

    null_safe: bool = False
    on_duplicate: FirstBy | None = None
    missing_is_error: bool = False
    write_unchanged: bool = False
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT
    collected_keys: int = COLLECTED_KEYS_DEFAULT
    prune_buckets: bool = True
    count_by: str | None = None
