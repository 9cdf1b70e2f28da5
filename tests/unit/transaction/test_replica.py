"""Which tables only a replication may write, by the marks that REPL LOAD leaves."""

from __future__ import annotations

import pytest

from mutation_api.transaction.preconditions import has_taken_over, is_target, why_not_writable

LOADED = {"repl.last.id": "7", "hive.repl.ckpt.key": "file:/dumps/1"}
TARGET = {"repl.target.for": "true", "repl.last.id": "7"}
TAKEN_OVER = {**TARGET, "repl.background.enable": "true"}
BEGUN = {"repl.metrics.last.failback.starttime": "1795646025548"}
FAILING_OVER = {"repl.source.for": "p", "repl.failover.endpoint": "SOURCE"}


@pytest.mark.parametrize(
    ("database", "table", "rule"),
    [
        pytest.param({}, LOADED, "property 'hive.repl.ckpt.key'", id="loaded table"),
        pytest.param({"repl.last.id": "7"}, {}, "'repl.last.id' is '7'", id="target of Hive 3"),
        pytest.param(TARGET, {}, "'repl.target.for' is 'true'", id="table made in a target"),
        pytest.param(TARGET, LOADED, "may write to it", id="loaded table of a target"),
        pytest.param({**TARGET, "repl.source.for": "q"}, LOADED, "may write to it", id="chain"),
        pytest.param(FAILING_OVER, {}, "would not be replicated", id="source that fails over"),
        pytest.param({"repl.source.for": "p", **BEGUN}, {}, "becoming the target", id="first failback"),
        pytest.param({**BEGUN, "repl.metrics.last.failback.endtime": "7"}, {}, "becoming", id="next"),
        pytest.param({"readonly": "TRUE"}, {}, "read-only", id="read-only"),
        pytest.param({**TAKEN_OVER, "readonly": "true"}, {}, "read-only", id="both"),
    ],
)
def test_refused(database: dict[str, str], table: dict[str, str], rule: str) -> None:
    """The reason names the property and its value."""
    assert rule in str(why_not_writable(database, table))


@pytest.mark.parametrize(
    ("database", "table"),
    [
        pytest.param({}, {}, id="no replication"),
        pytest.param({"repl.source.for": "p"}, {}, id="source"),
        pytest.param({"repl.source.for": "p"}, LOADED, id="source that once was a target"),
        pytest.param({**TARGET, "repl.failover.endpoint": "TARGET"}, LOADED, id="planned fail-over"),
        pytest.param(TAKEN_OVER, LOADED, id="taken over"),
        pytest.param({**TAKEN_OVER, **BEGUN}, LOADED, id="taken over, failback begun"),
        pytest.param(
            {"repl.source.for": "p", **BEGUN, "repl.metrics.last.failback.endtime": "1795646026793"},
            LOADED,
            id="failback over",
        ),
        pytest.param({"readonly": "false", "repl.target.for": ""}, {}, id="empty properties"),
    ],
)
def test_allowed(database: dict[str, str], table: dict[str, str]) -> None:
    """After a fail-over the tables keep their marks; the database's decide."""
    assert why_not_writable(database, table) is None


def test_roles() -> None:
    """A target stays one after a fail-over, until the replication of the other direction has begun."""
    assert is_target(TARGET) and not has_taken_over(TARGET)
    assert is_target(TAKEN_OVER) and has_taken_over(TAKEN_OVER)
    assert not is_target({"repl.source.for": "p"})
