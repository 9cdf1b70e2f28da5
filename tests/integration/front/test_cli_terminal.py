"""What others wrote into a real metastore and its tables is shown by the commands, and moves no cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.hive.connect import connect as connect_hive
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_judge import LINES

pytestmark = pytest.mark.slow

HOSTILE = "\x1b]0;gone\x07\x1b[2J\r\x9b31m\u202eevil\u2066"
"""Sets the title, rings, clears the screen, overwrites the line, turns the text round."""
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
SHOWN = "u202eevil"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("v", "string"))


@pytest.fixture
def metastore(hive_line: HiveJudge) -> Iterator[MetastoreClient]:
    """The judge's own."""
    with open_client(hive_line.uri) as client:
        yield client


def _lock(metastore: MetastoreClient, database: str, partition: str) -> int:
    """Another client's lock on a partition; its transaction."""
    name, host = f"eve{HOSTILE}\n7  mine", f"host{HOSTILE}\n8  mine"
    txn_id = metastore.open_txn(name, host, HOSTILE)
    component = LockComponent(
        LockType.EXCLUSIVE, LockLevel.PARTITION, database, "t", partition, DataOperationType.UPDATE
    )
    metastore.lock(LockRequest((component,), txn_id, name, host, HOSTILE))
    return txn_id


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_texts_of_others(
    hive_line: HiveJudge, line_database: str, metastore: MetastoreClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row, a value of a partition, a user, a host and an agent."""
    table, where = f"{line_database}.t", ("--metastore", hive_line.uri)
    create_acid_table(
        metastore, table, COLUMNS, [ColumnInfo("p", "string")], clustered_by=["id"], num_buckets=1
    )
    rows = pa.table({"id": [1], "v": [f"{HOSTILE}\nrow 2"], "p": [f"p{HOSTILE}"]})
    with connect_hive(metastore) as hive, hive.transaction(table, create_partitions=True) as transaction:
        transaction.table(table).append(rows)
    (partition,) = metastore.get_partition_names(line_database, "t")
    assert "evil" in partition
    said: dict[tuple[str, ...], str] = {}

    def run(*words: str) -> None:
        main([*words, *where])
        captured = capsys.readouterr()
        said[words] = captured.out + captured.err

    for words in (
        ("read", table),
        ("read", table, "--json"),
        ("read", table, "--where-partition", f"p{HOSTILE}=1"),
        ("verify", table),
    ):
        run(*words)
    txn_id = _lock(metastore, line_database, partition)
    try:
        for words in (
            ("history", table),
            ("history", table, "--by-partition"),
            ("history", table, "--json"),
            ("show", "txns"),
            ("show", "txns", "--json"),
            ("show", "locks"),
            ("show", "locks", "--json"),
            ("explain", str(txn_id)),
            ("explain", str(txn_id), "--json"),
            ("read", f"{table}{HOSTILE}"),
            ("read", table, "--lock-timeout", "1"),
        ):
            run(*words)
    finally:
        metastore.abort_txn(txn_id)
    for words, text in said.items():
        assert UNSAFE.search(text) is None, (words, text)
        assert SHOWN in text or words[0] == "verify", (words, text)
        assert not any(line.startswith(("7  mine", "8  mine", "row 2")) for line in text.splitlines()), (
            words,
            text,
        )
