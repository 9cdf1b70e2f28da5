"""A log of messages, and a table that follows it by either engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.message_logs import MessageLogs


@pytest.fixture
def logs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine_session: SparkSession | None,
) -> MessageLogs:
    """An empty log."""
    return MessageLogs(tmp_path, monkeypatch, capsys, engine_session)
