"""A streaming query whose process is killed at random times, again and again; Hive compares at the end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from tests.integration.streams.stream_shop import check_tables, create_tables, make_file

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

KILLS = 35
"""On each of three releases."""
FILES_EACH = 2
"""A batch each."""
ROOT = Path(__file__).parents[3]


def run(uri: str, database: str, folder: Path, death: tuple[int, float] | None) -> float | None:
    """Run the query, and kill it so many seconds after so many batches.

    Return the seconds that its last batch took, or None if it was killed.
    """
    command = [sys.executable, "-m", "tests.integration.drivers.streaming_driver", uri, database]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, str(folder / "in"), str(folder / "checkpoint")],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
        )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"starting\n", (folder / "log").read_text()[-3000:]
        if death is not None:
            lines = [process.stdout.readline() for _ in range(death[0])]
            try:
                process.wait(death[1] if all(lines) else None)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
        times = [time.monotonic() for _ in process.stdout]
        process.wait()
        assert process.returncode == 0, (folder / "log").read_text()[-3000:]
    return times[-1] - times[-2] if len(times) > 1 else 0.0


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_killed_queries_lose_and_repeat_nothing(
    hive_line: HiveJudge, line_database: str, tmp_path: Path
) -> None:
    """After each kill there are more files; the last run reads what is left.

    The first run is not killed: it shows how long a batch takes. Each of the others is killed within such a
    time after it began or after one of its first batches. More and more files are left over, so it has
    another batch to do then, on a machine of any speed.
    """
    create_tables(hive_line, line_database)
    rng = random.Random(27)
    rows = []
    ended = 0
    seconds = None
    for kill in range(KILLS + 1):
        for number in range(FILES_EACH):
            rows += make_file(tmp_path / "in", kill * FILES_EACH + number + 1)
        death = None if seconds is None else (rng.randrange(FILES_EACH + 1), rng.uniform(0, seconds))
        took = run(hive_line.uri, line_database, tmp_path, death)
        ended += took is not None
        seconds = seconds or took
        with open_client(hive_line.uri) as metastore:  # the killed one's heartbeat would end by itself, later
            for txn in metastore.get_open_txns().txns:
                metastore.abort_txn(txn.id)
    assert ended <= KILLS // 2, "most runs ended before they were killed"
    assert run(hive_line.uri, line_database, tmp_path, None) is not None
    check_tables(hive_line, line_database, rows)
