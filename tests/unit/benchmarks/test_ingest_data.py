"""Logs of the benchmark of ingestion: operations follow one another, and the reduced log follows from all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.data.ingest_data import OperationLogs
from benchmarks.data.merge_data import scrambled

ROWS = 5_000
OLD_KEYS = set(scrambled(np.arange(ROWS, dtype=np.int64)).tolist())


@pytest.fixture
def logs(tmp_path: Path) -> OperationLogs:
    made = OperationLogs(ROWS, operations=3_000, keys=900, rounds=2, folder=tmp_path)
    made.write()
    return made


def records(logs: OperationLogs, number: int) -> list[list[str]]:
    lines = [line for file in logs.staging_files(number) for line in file.read_text().splitlines()]
    return [line.split("\x01") for line in lines]


@pytest.mark.thorough
def test_operations_follow_one_another(logs: OperationLogs) -> None:
    """A delete of what is there, an insert of what is not; numbers grow from round to round."""
    there = set(OLD_KEYS)
    places = []
    for number in range(logs.rounds):
        for operation, seqno, row_number, _, key, id_, *values in records(logs, number):
            places.append((int(seqno), int(row_number)))
            assert key == id_
            assert (int(key) in there) == (operation == "D")
            there ^= {int(key)}
            assert all(value == r"\N" for value in values) == (operation == "D")
    assert places == sorted(set(places))
    assert places[-1][0] == logs.rounds * logs.operations


@pytest.mark.thorough
def test_reduced_log_is_the_last_operation_that_matters(logs: OperationLogs) -> None:
    for number in range(logs.rounds):
        last = {int(record[4]): record for record in records(logs, number)}
        wanted = {
            key: (record[0] == "I", record[7])
            for key, record in last.items()
            if record[0] == "I" or key in OLD_KEYS
        }
        found = pq.read_table(logs.reduced(number)).to_pylist()
        assert {row["id"]: row["op"] for row in found} == {
            key: "U" if is_there else "D" for key, (is_there, _) in wanted.items()
        }
        assert all(wanted[row["id"]][1] == row["name"] for row in found if row["op"] == "U")
        assert {row["op"] for row in found} == {"U", "D"}


@pytest.mark.thorough
def test_rounds_have_keys_of_their_own(logs: OperationLogs) -> None:
    first, second = ({record[4] for record in records(logs, number)} for number in range(2))
    assert not first & second


def test_too_few_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need more than 100 rows"):
        OperationLogs(100, operations=500, keys=100, rounds=2, folder=tmp_path).write()
