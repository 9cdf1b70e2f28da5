"""Sessions of Spark Connect have neither a JVM nor RDDs at hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

FUNCTIONS = ("spark_context", "sql_parser", "analyzed_plan", "estimated_bytes", "raw_bytes", "plan_changes")


def test_a_session_of_spark_connect_is_refused() -> None:
    """By our own error, whatever is called first; a real session, in a process of its own."""
    command = [sys.executable, "-m", "tests.integration.drivers.connect_driver"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = [line for line in done.stdout.splitlines() if line.split(" ")[0] in FUNCTIONS]
    assert [line.split(":")[0] for line in told] == [f"{name} refused" for name in FUNCTIONS]
    assert all("Spark Connect" in line for line in told)
