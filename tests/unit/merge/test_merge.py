"""What merge_into and its clauses record, without Spark."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.hive.hive_table import HiveTable
from mutation_api.merge.clauses import Action, Clause, Match, MergeOptions, MergeOptionsDict
from mutation_api.merge.local_merge import local_merge
from mutation_api.merge.local_rules import local_merge_by_rules
from mutation_api.merge.spark_merge import merge_into
from mutation_api.merge.spark_rules import merge_by_rules


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


def test_the_options_have_a_default_each() -> None:
    """What functions take as keywords is what the checked options hold, with the same types."""
    assert get_type_hints(MergeOptions) == get_type_hints(MergeOptionsDict)
    assert MergeOptions() == MergeOptions(**MergeOptionsDict())


@pytest.mark.parametrize(
    "function", [HiveTable.merge, local_merge, local_merge_by_rules, merge_by_rules, merge_into]
)
def test_an_option_is_passed_through_every_layer(function: Callable[..., object]) -> None:
    """No function repeats the options, so none can forget a new one."""
    parameters = inspect.signature(function).parameters
    assert parameters["options"].annotation == "Unpack[MergeOptionsDict]"
    assert parameters.keys().isdisjoint(MergeOptionsDict.__annotations__)


@pytest.mark.thorough
def test_actions_and_matches_are_not_compared() -> None:
    """A ``match`` statement ends in assert_never, so mypy names it for a new member; a comparison does not.

    What distinguishes the members otherwise is in their table in ``clauses.py``.
    """
    package = Path(inspect.getfile(MergeOptions)).parents[1]
    compared = [
        f"{path.name}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Name)
        and part.value.id in ("Action", "Match")
    ]
    assert compared == []
