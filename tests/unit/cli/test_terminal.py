"""What the commands print obeys nobody but this library: no text of others moves a cursor or makes a line."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cli import main as command
from mutation_api.cli.terminal import safe_warnings, say, say_aside
from mutation_api.format.printable import one_line, printable
from mutation_api.hive.connect import connect
from mutation_api.upkeep.create_acid_table import create_acid_table

HOSTILE = "\x1b]0;gone\x07\x1b[2J\r\x9b31m\u202eevil\u2066\x00"
"""Sets the title, clears the screen, overwrites the line, turns the text round."""
SHOWN = "\\u001b]0;gone\\u0007\\u001b[2J\\u000d\\u009b31m\\u202eevil\\u2066\\u0000"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_what_a_terminal_obeys_is_escaped() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("ä\u200d👩\tb\nc\u00a0") == "ä\u200d👩\tb\nc\u00a0"
    assert one_line("a\nb\tc") == "a\\u000ab\\u0009c"


def test_both_ways_out(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE, 1)
    say_aside(HOSTILE)
    with safe_warnings():
        logging.getLogger("mutation_api.some").warning("table %s", HOSTILE)
    out, err = capsys.readouterr()
    assert out == f"{SHOWN} 1\n"
    assert err == f"{SHOWN}\n" if "table" not in err else err == f"{SHOWN}\ntable {SHOWN}\n"


def test_nothing_else_prints() -> None:
    """A print beside these functions would bring the fault back."""
    for file in sorted(Path(command.__file__).parent.rglob("*.py")):
        if file.name != "terminal.py":
            found = re.search(r"(?<![\w.])print\(|sys\.std(out|err)\.write", file.read_text(encoding="utf-8"))
            assert found is None, f"{file}: {found}"


def shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Both outputs of a command."""
    command.main(arguments)
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize("as_json", [False, True])
def test_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = [ColumnInfo("id", "bigint"), ColumnInfo("v", "string")]
    table = create_acid_table(metastore, "default.t", columns, clustered_by=["id"], num_buckets=1)
    with connect(metastore) as hive, hive.transaction("default.t") as transaction:
        transaction.table("default.t").append(pa.table({"id": [1], "v": [f"{HOSTILE}\nrow 2"]}))
    ids = "default.t:1:9223372036854775807::"
    text = shown(
        [
            *("read", "--location", table.location, "--schema", "id bigint, v string"),
            *("--buckets", "1", "--valid-write-ids", ids, *(["--json"] if as_json else [])),
        ],
        capsys,
    )
    assert SHOWN in text.replace("\\r", "\\u000d")
    assert UNSAFE.search(text) is None
    assert not any(line.startswith("row 2") for line in text.splitlines())


def test_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(["read", "--location", f"/no{HOSTILE[:-1]}", "--schema", f"id {HOSTILE}"], capsys)
    assert "evil" in text
    assert UNSAFE.search(text) is None


def test_locks_of_others(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    metastore = InMemoryMetastore()
    txn_id = metastore.open_txn("us", "here", "")
    component = LockComponent(
        LockType.SHARED_READ, LockLevel.TABLE, "default", "t", None, DataOperationType.SELECT
    )
    metastore.lock(LockRequest((component,), txn_id, f"eve{HOSTILE}\n7  mine", f"host{HOSTILE}", HOSTILE))
    monkeypatch.setattr("mutation_api.cli.show.metastore_from", lambda _: contextlib.nullcontext(metastore))
    text = shown(["show", "locks"], capsys)
    assert "evil" in text
    assert UNSAFE.search(text) is None
    assert not any(line.startswith("7 ") for line in text.splitlines())
