"""What merge_into and its clauses record, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.merge.clauses import Action, Clause, Match
from mutation_api.merge.spark_merge import merge_into


def begin(**options: Any) -> Any:
    """A merge of nothing; it never runs."""
    return merge_into(None, "d.t", **{"source": None, "on": ["id"], **options})  # type: ignore[arg-type]


def test_clauses_are_kept_in_order() -> None:
    """As written; column names lose their case."""
    merge = (
        begin()
        .whenMatched("source.op = 'D'")
        .delete()
        .whenMatched()
        .update({"Name": "source.n"})
        .whenNotMatched()
        .insertAll()
        .whenNotMatchedBySource("target.x")
        .delete()
    )
    assert merge.clauses == [
        Clause(Match.MATCHED, "source.op = 'D'", Action.DELETE),
        Clause(Match.MATCHED, None, Action.UPDATE, {"name": "source.n"}),
        Clause(Match.NOT_MATCHED, None, Action.INSERT),
        Clause(Match.NOT_MATCHED_BY_SOURCE, "target.x", Action.DELETE),
    ]
    assert str(merge.clauses[0]) == "whenMatched(source.op = 'D').delete"
    assert [clause.takes_all for clause in merge.clauses] == [False, False, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_duplicate": "last"}, "on_duplicate must be 'error' or first_by(…), got 'last'"),
        ({"missing_columns": "skip"}, "missing_columns must be 'null' or 'error', got 'skip'"),
        ({"on": []}, "on must name at least one key column, and each once, got []"),
        ({"on": ["id", "ID"]}, "on must name at least one key column, and each once, got ['id', 'id']"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """Refused at once, word for word."""
    with pytest.raises(ConfigurationError) as caught:
        begin(**options)
    assert str(caught.value) == message
