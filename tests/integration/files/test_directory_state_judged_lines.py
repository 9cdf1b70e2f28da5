"""Our choice among a partition's directories against that of Hive 3.1, 4.1 and 4.2, on random directories."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from judges.errors import HiveError
from judges.hive.hive_judges import Hive31, Hive41
from judges.hive.model import DirectoryState as HivesState
from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList, ValidWriteIdList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import COMPACTED, DirectoryState, choose_directories
from mutation_api.format.layout import (
    BASE_MARKER,
    LONG_MIN,
    AcidVersion,
    DeltaDirectory,
    delete_delta_directory_name,
    delta_directory_name,
    is_hidden,
)
from tests.fixtures.fix_newest import HIVE_4, NEWEST
from tests.support.directory_cases import base_directory_name

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)]

CASES = 300
VERSIONS = {"3.1": AcidVersion.V2_HIVE3, **dict.fromkeys(HIVE_4, AcidVersion.V2_HIVE4)}
TXNS = (20, 21, 22)
"""Transactions of compactions."""


def random_case(rng: random.Random, version: AcidVersion) -> tuple[list[str], dict[str, str]]:
    """Directories of few write ids, so that they cover each other, and formats of the bases that tell one."""
    first = rng.choice((1, 5, 9_999_996))
    ids = tuple(range(first, first + rng.choice((2, 6, 9))))

    def suffix() -> str:
        return f"_v{rng.choice(TXNS):07d}" if version.is_hive_4 and rng.random() < 0.4 else ""

    names = {base_directory_name(rng.choice(ids)) + suffix() for _ in range(rng.choice((0, 0, 1, 2, 3)))}
    formats = {name: COMPACTED for name in sorted(names) if "_v" not in name and rng.random() < 0.5}
    if rng.random() < 0.1:
        names.add(base_directory_name(LONG_MIN))
    for _ in range(rng.randint(0, 10)):
        one, other = sorted((rng.choice(ids), rng.choice(ids)))
        if rng.random() < 0.5:
            other = one
        ending = suffix() if one < other or rng.random() < 0.2 else ""
        statement = rng.choice((None, 0, 1, 7, 9999)) if one == other and not ending else None
        kinds = [delta_directory_name, delete_delta_directory_name]
        for build in kinds if rng.random() < 0.3 else [rng.choice(kinds)]:
            names.add(build(one, other, statement) + ending)
    names |= set(rng.sample(("_tmp_base_5", ".hive-staging", "_x"), rng.choice((0, 0, 1))))
    names |= set(rng.sample(("sub", "HIVE_UNION_SUBDIR_1"), rng.choice((0, 0, 1))))
    return sorted(names), formats


def random_ids(rng: random.Random, names: list[str]) -> ValidWriteIdList:
    """A high watermark at or around the ids of the names, with open and aborted ones below it."""
    numbers = sorted({int(part) for name in names for part in name.split("_")[1:3] if part.isdigit()})
    known = [n for n in numbers if n > 100 or n < 20] or [1]
    high = rng.choice((0, known[0] - 1, *known, known[-1] + 1))
    below = [n for n in known if n <= high]
    exceptions = tuple(sorted(rng.sample(below, rng.choice((0, 0, min(1, len(below)), len(below) // 2)))))
    is_open = [e for e in exceptions if rng.random() < 0.5]
    aborted = frozenset(exceptions) - set(is_open)
    return ValidWriteIdList(high, exceptions, min(is_open, default=NO_OPEN_ID), aborted, "d.t")


def random_txns(rng: random.Random) -> ValidTxnList:
    hidden = tuple(sorted(rng.sample(TXNS, rng.choice((0, 0, 1, 2)))))
    return ValidTxnList(30, hidden, min(hidden, default=NO_OPEN_ID))


@pytest.mark.newest
def test_the_choice_is_hives(hive_line: Hive31 | Hive41, tmp_path: Path) -> None:
    """The same base, deltas in order, original files and obsolete names; refused where Hive refuses.

    We also refuse two directories of the same events, of which Hive reads both (4.2 reads two deltas that are
    neighbours in its order only once), and a snapshot older than any compaction, of which Hive 4 looks at the
    oldest base only. What it shows of an overwrite that is under way we do not.
    """
    rng = random.Random(31)
    version = VERSIONS[hive_line.line]
    kinds = ("history", "base", "originals", "obsolete", "deltas", "doubles", "compacted", "uncommitted")
    seen = dict.fromkeys(kinds, 0)
    for case in range(CASES):
        names, formats = random_case(rng, version)
        valid, txns = random_ids(rng, names), random_txns(rng)
        files = dict.fromkeys(rng.sample(("000000_0", "000000_0_copy_1"), rng.choice((0, 0, 1))), 3)
        folder = tmp_path / str(case)
        make(folder, names, formats, files)
        place = f"case {case}: {names}, {formats}, valid {valid.to_text()}, {txns.to_write_id_text()}"
        try:
            ours = choose_directories(
                *(names, files, valid),
                version=version,
                location=str(folder),
                valid_txns=txns,
                base_formats=formats,
            )
        except DirectoryStateError as error:
            check_refusal(hive_line, folder, valid, txns, str(error), place, seen)
            continue
        theirs = hive_line.acid_state(folder, valid.to_text(), txns.to_write_id_text())
        if version.is_hive_4 and is_uncommitted(theirs, valid):
            seen["uncommitted"] += 1
            continue
        if hive_line.line == NEWEST:
            ours = dataclasses.replace(ours, deltas=tuple(sorted(ours.deltas, key=order_of_newest)))
        compare(folder, ours, theirs, formats, place)
        seen["base"] += ours.base is not None
        seen["originals"] += bool(ours.original_files)
        seen["obsolete"] += bool(ours.obsolete)
        seen["deltas"] += len(ours.deltas) > 1
        seen["compacted"] += any(d.compaction_txn for d in ours.deltas)
    if not version.is_hive_4:
        del seen["compacted"], seen["doubles"], seen["uncommitted"]
    assert min(seen.values()) >= 4, seen


def make(folder: Path, names: list[str], formats: dict[str, str], files: dict[str, int]) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).mkdir()
        (folder / name / ("bucket_00000" if "_" in name else "000000_0")).write_bytes(b"ORC")
    for name, data_format in formats.items():
        marker = {"thisFileVersion": "0", "dataFormat": data_format}
        (folder / name / BASE_MARKER).write_text(str(marker).replace("'", '"'))
    for name, size in files.items():
        (folder / name).write_bytes(b"x" * size)


def check_refusal(
    hive: Hive31 | Hive41,
    folder: Path,
    valid: ValidWriteIdList,
    txns: ValidTxnList,
    error: str,
    place: str,
    seen: dict[str, int],
) -> None:
    try:
        theirs = hive.acid_state(folder, valid.to_text(), txns.to_write_id_text())
    except HiveError as refusal:
        assert "Not enough history" in str(refusal), place
        assert "not enough history" in error, place
        seen["history"] += 1
        return
    assert VERSIONS[hive.line].is_hive_4, place
    if "contain the same events" in error:
        known = [*theirs.deltas, *(theirs.obsolete if hive.line == NEWEST else ())]
        plain = [name.rpartition("_v")[0] or name for name in known]
        assert len(set(plain)) < len(plain), place
        seen["doubles"] += 1
    else:
        assert "not enough history" in error, place
        assert theirs.base is None or is_uncommitted(theirs, valid), place


def is_uncommitted(theirs: HivesState, valid: ValidWriteIdList) -> bool:
    """Whether Hive chose the base of the smallest open write id, which may be under way."""
    return theirs.base is not None and theirs.base.split("_")[1] == f"{valid.min_open:07d}"


def order_of_newest(delta: DeltaDirectory) -> tuple[int, int, int, int, str]:
    """4.2 reads directories of one range by age of the compaction that made them, the latest first."""
    statement = -1 if delta.statement_id is None else delta.statement_id
    return (delta.first, -delta.last, statement, -delta.compaction_txn, delta.name)


def compare(
    folder: Path, ours: DirectoryState, theirs: HivesState, formats: dict[str, str], place: str
) -> None:
    """Original directories are told by the files in them, in Hive's answer.

    Which of several compacted bases of one write id Hive takes depends on the order in which it meets them.
    """
    names = {ours.base.name if ours.base else None, theirs.base}
    if len(names) > 1:
        assert len({name and name.partition("_v")[0] for name in names}) == 1, place
        assert all(name and ("_v" in name or name in formats) for name in names), place
    assert [d.name for d in ours.deltas] == list(theirs.deltas), place
    originals = list(ours.original_files)
    for name in ours.original_directories:
        originals += [f"{name}/{file.name}" for file in (folder / name).iterdir() if not is_hidden(file.name)]
    assert sorted(originals) == sorted(theirs.originals), place
    # Whether Hive lists a base that nobody may use depends on the order in which it meets them.
    acid = ("delta_", "delete_delta_")
    assert sorted(n for n in ours.obsolete if n.startswith(acid)) == sorted(
        n for n in theirs.obsolete if n.startswith(acid)
    ), place
