"""Changes of parameters that meet another client's in the server's database."""

from __future__ import annotations

import pytest

from metastore_client.errors import MetastoreError
from metastore_client.remote.thrift_client import _again_after_a_race
from metastore_client.remote.thrift_tables import RACE_TRIES

RACE = "alter_table_req: INSERT INTO TABLE_PARAMS: duplicate key value in 'TABLE_PARAMS_PK'"


@pytest.mark.parametrize("failures", [0, 1, RACE_TRIES - 1])
def test_a_change_that_lost_a_race_is_made_again(failures: int) -> None:
    """From what is there then, so the change is computed anew."""
    calls = []

    def change() -> int:
        calls.append(1)
        if len(calls) <= failures:
            raise MetastoreError(RACE)
        return 7

    assert _again_after_a_race(change) == 7
    assert len(calls) == failures + 1


@pytest.mark.parametrize(("text", "tries"), [(RACE, RACE_TRIES), ("no such table", 1)])
def test_other_failures_and_too_many_races_are_errors(text: str, tries: int) -> None:
    """The error is the server's."""
    calls = []

    def change() -> int:
        calls.append(1)
        raise MetastoreError(text)

    with pytest.raises(MetastoreError, match=text[:20]):
        _again_after_a_race(change)
    assert len(calls) == tries
