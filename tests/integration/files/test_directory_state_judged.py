"""Our choice among a partition's directories against Hive's own, on random directories."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from judges.errors import HiveError
from judges.hive.hive_judges import Hive23
from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import DirectoryState, choose_directories
from mutation_api.format.layout import (
    LONG_MIN,
    AcidVersion,
    delete_delta_directory_name,
    delta_directory_name,
)
from tests.support.directory_cases import base_directory_name

pytestmark = pytest.mark.slow

CASES = 100
V1 = AcidVersion.V1_LEGACY
HIDDEN = ("_tmp_base_5", ".hive-staging", "_mutation_0000009", ".delta_0000001_0000001", "_orc_acid_version")
ORIGINAL_FILES = ("000000_0", "000001_0", "000000_0_copy_1", "part-00000", "datafile.orc")
ORIGINAL_DIRECTORIES = ("000000_0.d", "sub", "HIVE_UNION_SUBDIR_1", "delta", "base")


def random_ids(rng: random.Random) -> tuple[int, ...]:
    """Few ids, so that directories cover each other; small, or beyond the seven digits of a name."""
    first = rng.choice((1, 5, 9_999_996))
    return tuple(range(first, first + rng.choice((2, 6, 9))))


def random_directories(rng: random.Random, ids: tuple[int, ...]) -> list[str]:
    """Bases, deltas of transactions, statements and compactions, hidden ones, and what is none of ours."""
    names = {base_directory_name(rng.choice(ids)) for _ in range(rng.choice((0, 0, 1, 2, 3)))}
    if rng.random() < 0.1:
        names.add(base_directory_name(LONG_MIN))
    for _ in range(rng.randint(0, 12)):
        first, last = sorted((rng.choice(ids), rng.choice(ids)))
        if rng.random() < 0.5:
            last = first
        statement = rng.choice((None, 0, 1, 7, 9999)) if first == last else None
        build = rng.choice((delta_directory_name, delete_delta_directory_name))
        names.add(build(first, last, statement))
        if rng.random() < 0.3:  # update and delete of one transaction, as split tables have them
            names |= {b(first, last, statement) for b in (delta_directory_name, delete_delta_directory_name)}
    for more in (HIDDEN, ORIGINAL_DIRECTORIES):
        names |= set(rng.sample(more, rng.choice((0, 0, 1, 2))))
    return sorted(names)


def random_snapshot(rng: random.Random, ids: tuple[int, ...]) -> ValidTxnList:
    """A high watermark at or around the ids, with open and aborted ones below it."""
    high = rng.choice((0, ids[0] - 1, *ids, ids[-1] + 1, 2**63 - 2))
    below = [i for i in ids if i <= high]
    exceptions = tuple(sorted(rng.sample(below, rng.randint(0, len(below)))))
    open_ids = [e for e in exceptions if rng.random() < 0.5]
    return ValidTxnList(high, exceptions, min(open_ids, default=NO_OPEN_ID))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [20_15, 20_16, 20_17])
def test_the_choice_is_hives(hive: Hive23, tmp_path: Path, seed: int) -> None:
    """The same base, deltas in order, original files and obsolete names; refused where Hive refuses."""
    rng = random.Random(seed)
    seen = {"refused": 0, "base": 0, "originals": 0, "obsolete": 0, "deltas": 0}
    for case in range(CASES):
        ids = random_ids(rng)
        names, valid = random_directories(rng, ids), random_snapshot(rng, ids)
        files = {name: rng.choice((0, 3)) for name in rng.sample(ORIGINAL_FILES, rng.choice((0, 0, 1, 3)))}
        folder = tmp_path / str(case)
        make(folder, names, files)
        place = f"case {case}: {names}, {files}, valid {valid.to_text()}"
        try:
            ours = choose_directories(names, files, valid, version=V1, location=str(folder))
        except DirectoryStateError as error:
            assert "not enough history" in str(error), place
            with pytest.raises(HiveError, match="Not enough history"):
                hive.acid_state(folder, valid.to_text())
            seen["refused"] += 1
            continue
        compare(hive, folder, ours, valid, place)
        seen["base"] += ours.base is not None
        seen["originals"] += bool(ours.original_files)
        seen["obsolete"] += bool(ours.obsolete)
        seen["deltas"] += len(ours.deltas) > 1
    assert min(seen.values()) >= CASES // 20, seen


def make(folder: Path, directories: list[str], files: dict[str, int]) -> None:
    """The directories, each with a file so that it counts, and the files of their sizes."""
    folder.mkdir()
    for name in directories:
        (folder / name).mkdir()
        (folder / name / "bucket_00000").write_bytes(b"ORC")
    for name, size in files.items():
        (folder / name).write_bytes(b"x" * size)


def compare(hive: Hive23, folder: Path, ours: DirectoryState, valid: ValidTxnList, place: str) -> None:
    """Original directories are told by the files in them, in Hive's answer."""
    theirs = hive.acid_state(folder, valid.to_text())
    assert (ours.base.name if ours.base else None) == theirs.base, place
    assert [d.name for d in ours.deltas] == list(theirs.deltas), place
    originals = [*ours.original_files, *(f"{name}/bucket_00000" for name in ours.original_directories)]
    # Hive lists empty original files now and then (if there are directories of them too); they have no rows.
    assert sorted(originals) == sorted(n for n in theirs.originals if (folder / n).stat().st_size), place
    # Beside a base Hive lists original files one by one, empty ones too; we list what a reader would read.
    acid = ("base_", "delta_", "delete_delta_")
    assert sorted(n for n in ours.obsolete if n.startswith(acid)) == sorted(
        n for n in theirs.obsolete if n.startswith(acid)
    ), place
