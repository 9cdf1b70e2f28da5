"""How long requests wait for a NameNode."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from mutation_api.storage import hdfs_client as patience_module
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs_client import Patience

ATTEMPTS = "dfs.client.failover.max.attempts"
SLEEPS = {"dfs.client.failover.sleep.base.millis": "100", "dfs.client.failover.sleep.max.millis": "300"}


@pytest.mark.parametrize(("name_nodes", "attempts"), [("", "8"), ("a,b", "16"), ("a, b, c", "24")])
def test_about_a_minute_however_many_name_nodes_there_are(name_nodes: str, attempts: str) -> None:
    """The client counts attempts, of which each round has one for each NameNode."""
    settings = HadoopSettings({"dfs.nameservices": "s", "dfs.ha.namenodes.s": name_nodes})
    patience = Patience(settings)
    assert patience.settings.get(ATTEMPTS) == attempts
    assert patience.seconds == pytest.approx(60.5)


def test_settings_of_hadoop_decide() -> None:
    """Those that the client knows, too."""
    patience = Patience(HadoopSettings({ATTEMPTS: "4", **SLEEPS}))
    assert patience.settings.get(ATTEMPTS) == "4"
    assert patience.seconds == pytest.approx(0.1 + 0.2 + 0.3 + 0.3)
    with pytest.raises(OSError, match="whole number"):
        Patience(HadoopSettings({ATTEMPTS: "many"}))


def test_what_passes_is_repeated_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time by ``again``; when the rounds are over, the last error is raised."""
    slept: list[float] = []
    stopped = SimpleNamespace(sleep=slept.append, monotonic=lambda: 0.0)
    monkeypatch.setattr(patience_module, "time", stopped)
    patience = Patience(HadoopSettings({ATTEMPTS: "3", **SLEEPS}))
    asked: list[str] = []

    def fail(name: str, number: int) -> str:
        asked.append(name)
        raise OSError(number, name)

    def is_passing(error: OSError) -> bool:
        return error.errno == errno.EAGAIN

    assert patience.repeat(lambda: fail("work", errno.EAGAIN), is_passing, lambda: "found") == "found"
    with pytest.raises(OSError, match="again"):
        patience.repeat(lambda: fail("work", errno.EAGAIN), is_passing, lambda: fail("again", errno.EAGAIN))
    assert asked == ["work", "work", "again", "again", "again"]
    assert all(0 < each <= 0.45 for each in slept)
    assert len(slept) == 4
    with pytest.raises(PermissionError):
        patience.repeat(lambda: fail("work", errno.EACCES), is_passing)
    assert len(slept) == 4
