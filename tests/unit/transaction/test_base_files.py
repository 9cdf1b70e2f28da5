"""Which empty base files are created, and that files with rows are not touched."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.orc
import pytest

from metastore_client.testing import InMemoryMetastore
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction import base_files
from mutation_api.transaction.base_files import complete_base
from mutation_api.transaction.descriptors import describe
from tests.support.acid_files import inserts, write_events, write_orc
from tests.support.client_support import table_info

BASE = "base_0000005"


@pytest.fixture
def table(tmp_path: Path) -> AcidTable:
    metastore = InMemoryMetastore(tmp_path / "warehouse")
    metastore.create_table(table_info("t", num_buckets=4))
    info = metastore.get_table("default", "t")
    described = describe(info, AcidVersion.V1_LEGACY, TableRole.SINK, create_partitions=False, time_zone=None)
    return described.bind(9)


def plain_rows(path: Path) -> None:
    write_orc(path, pyarrow.table({"id": [1], "msg": ["x"]}))


def contents(directory: Path) -> dict[str, int]:
    """Rows by path, of every visible file."""
    files = (p for p in directory.rglob("*") if p.is_file())
    return {str(p.relative_to(directory)): pyarrow.orc.ORCFile(p).nrows for p in files}


def test_the_newest_base_gets_what_it_lacks(tmp_path: Path, table: AcidTable) -> None:
    place = tmp_path / "p"
    for name, bucket_id in itertools.product(("base_0000003", BASE), (1, 2)):
        write_events(place / name / f"bucket_{bucket_id:05d}", inserts(1, bucket_id, 0, [(2, "x")]))
    plain_rows(place / "000000_0")
    write_events(place / "delta_0000006_0000006_0000" / "bucket_00001", inserts(6, 1, 0, [(1, "x")]))
    before = contents(place)
    complete_base(table, Location.given(place))
    assert contents(place) == before | {f"{BASE}/bucket_00000": 0, f"{BASE}/bucket_00003": 0}


def test_original_files_of_length_0_are_replaced_with_their_checksums(
    tmp_path: Path, table: AcidTable
) -> None:
    place = tmp_path / "p"
    for name in ("000000_0", "000003_0"):
        plain_rows(place / name)
    (place / "000001_0").touch()
    (place / ".000001_0.crc").write_bytes(b"crc")
    complete_base(table, Location.given(place))
    assert contents(place) == {"000000_0": 1, "000001_0": 0, "000002_0": 0, "000003_0": 1}


@pytest.mark.parametrize("folder", ["", BASE, "delta_0000006_0000006", None])
def test_where_less_than_two_base_files_have_content_nothing_is_made(
    tmp_path: Path, table: AcidTable, folder: str | None
) -> None:
    place = tmp_path / "p"
    if folder is not None:
        plain_rows(place / folder / "000000_0")
        write_events(place / folder / "bucket_00001", inserts(1, 1, 0, [(2, "x")]))
        for name in ("bucket_00000", "000001_0"):
            (place / folder / name).touch()
    before = {str(p) for p in tmp_path.rglob("*")}
    complete_base(table, Location.given(place))
    assert {str(p) for p in tmp_path.rglob("*")} == before


def test_who_comes_second_leaves_the_first_ones_file(
    tmp_path: Path, table: AcidTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "p"
    for name in ("000000_0", "000002_0", "000003_0"):
        plain_rows(place / name)
    created = base_files._create_empty

    def after_another(storage: Storage, target: Location, version: AcidVersion, table: AcidTable) -> None:
        plain_rows(Path(target.path))
        created(storage, target, version, table)

    monkeypatch.setattr(base_files, "_create_empty", after_another)
    complete_base(table, Location.given(place))
    assert contents(place) == {f"00000{n}_0": 1 for n in range(4)}
