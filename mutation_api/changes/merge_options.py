"""MergeOptions: the options of a merge besides its clauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutation_api.changes.duplicates import DUPLICATES_SHOWN_DEFAULT, FirstBy
from mutation_api.errors import ConfigurationError
from mutation_api.table.named_columns import checked_names

__all__ = ["CHANGE_COLUMN", "COLLECTED_KEYS_DEFAULT", "MergeOptions", "checked_options"]

CHANGE_COLUMN = "__change"
"""Name of the operation column of the change set that a merge writes; a table may have an ``operation``."""

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


def checked_options(
    *,
    keys: Sequence[str] | None,
    on_duplicate: str | FirstBy,
    missing_columns: str,
    null_safe: bool = False,
    write_unchanged: bool = False,
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT,
    collected_keys: int = COLLECTED_KEYS_DEFAULT,
    prune_buckets: bool = True,
    count_by: str | None = None,
) -> MergeOptions:
    """The options as the user gave them; ``keys`` are the key columns, None for a condition.

    Raises:
        ConfigurationError: one of them is invalid.
    """
    if not (isinstance(on_duplicate, FirstBy) or on_duplicate == "error"):
        raise ConfigurationError(f"on_duplicate={on_duplicate!r}: it must be 'error' or first_by(…)")
    if missing_columns not in ("null", "error"):
        raise ConfigurationError(f"missing_columns={missing_columns!r}: it must be 'null' or 'error'")
    flags = {"null_safe": null_safe, "write_unchanged": write_unchanged, "prune_buckets": prune_buckets}
    for name, flag in flags.items():
        if not isinstance(flag, bool):  # 'no' would count as true
            raise ConfigurationError(f"{name}={flag!r}: it must be True or False")
    if not isinstance(count_by, str | None):
        raise ConfigurationError(f"count_by={count_by!r}: give the name of a column of the source")
    names = None if keys is None else checked_names(keys, "on")
    if names is not None and (not names or len(set(names)) < len(names)):
        raise ConfigurationError(f"on={names!r}: name at least one key column, and each once")
    return MergeOptions(
        null_safe,
        on_duplicate if isinstance(on_duplicate, FirstBy) else None,
        missing_columns == "error",
        write_unchanged,
        duplicates_shown,
        collected_keys,
        prune_buckets=prune_buckets,
        count_by=None if count_by is None else count_by.lower(),
    )
