"""Staging directories: what is found in them, and which of them may go."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.model import OpenTxns, TxnInfo, TxnState
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction import staging
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.manifest_checks import StagedFile, StagedOutput
from mutation_api.transaction.staging import Abandoned, list_staged, remove_abandoned, remove_staging
from tests.support.client_support import table_info


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table's directory with a space and a percent sign in its name."""
    root = tmp_path / "a %41 table"
    root.mkdir()
    return root


@pytest.fixture
def table(root: Path) -> AcidTable:
    info = table_info(location=f"file:{root}")
    table = describe(info, AcidVersion.V1_LEGACY, TableRole.SINK, create_partitions=False, time_zone=None)
    return table.bind(7)


def put(path: Path, content: bytes = b"x") -> Location:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Location.given(path)


def txns(high_watermark: int, **states: TxnState) -> OpenTxns:
    infos = tuple(TxnInfo(int(name[1:]), state, "u", "h") for name, state in states.items())
    return OpenTxns(high_watermark, infos)


def test_every_file_is_found_wherever_it_lies(table: AcidTable, root: Path) -> None:
    """Also files at a higher level: the committer must see them, whichever process wrote them."""
    good = put(root / "_mutation_7/w/0/0_delta_bucket_00000", b"12345")
    high = put(root / "_mutation_7/w/stray")
    higher = put(root / "_mutation_7/stranger")
    put(root / "_mutation_8/w/0/0_delta_bucket_00000")
    assert sorted(list_staged(table, 7).files, key=lambda f: f.location) == sorted(
        [
            StagedFile("w", "0", good, 5),
            StagedFile("w", "stray", high, 1),
            StagedFile("stranger", "stranger", higher, 1),
        ],
        key=lambda f: f.location,
    )


def test_nothing_staged_is_no_error(table: AcidTable) -> None:
    """A transaction that wrote nothing has no directory."""
    assert list_staged(table, 7) == StagedOutput(())
    remove_staging(table, 7)


def test_only_the_transactions_own_staging_goes(table: AcidTable, root: Path) -> None:
    """Transaction 7 is not 70."""
    for txn_id in (7, 70):
        put(root / f"_mutation_{txn_id}/w/0/f")
    remove_staging(table, 7)
    assert [p.name for p in root.iterdir()] == ["_mutation_70"]


def test_what_the_dead_left_goes_and_the_living_keep_theirs(table: AcidTable, root: Path) -> None:
    """Those of aborted and ended transactions go; open ones, ones newer than the list and others stay."""
    for name in ("_mutation_1", "_mutation_2", "_mutation_3", "_mutation_9", "_mutation_x", "_mutation_1b"):
        put(root / name / "w/0/f")
    put(root / "delta_0000001_0000001_0000/bucket_00000")
    put(root / "_mutation_4")
    listing = txns(5, t1=TxnState.ABORTED, t2=TxnState.OPEN)
    put(root / "_mutation_probe_12ab")
    removed = [
        Abandoned(1, Location.given(root / "_mutation_1")),
        Abandoned(3, Location.given(root / "_mutation_3")),
        Abandoned(None, Location.given(root / "_mutation_probe_12ab")),
    ]
    assert remove_abandoned(table, listing) == removed
    assert sorted(p.name for p in root.iterdir()) == [
        "_mutation_1b", "_mutation_2", "_mutation_4", "_mutation_9", "_mutation_x",
        "delta_0000001_0000001_0000",
    ]  # fmt: skip


def test_a_place_that_cannot_be_listed_is_told(
    table: AcidTable, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cleaning up after others must not make a transaction fail."""
    root.rmdir()
    root.write_text("a file in the table's place")
    assert remove_abandoned(table, txns(5)) == []
    assert "could not look for abandoned staging directories" in caplog.text


def test_what_another_client_removed_first_is_no_failure(
    table: AcidTable, root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that begin at once find the same remains."""
    put(root / "_mutation_probe_12ab")
    found = staging.find_abandoned(table, txns(5))
    (root / "_mutation_probe_12ab").unlink()
    monkeypatch.setattr(staging, "find_abandoned", lambda *_: found)
    assert remove_abandoned(table, txns(5)) == []
    assert caplog.text == ""
