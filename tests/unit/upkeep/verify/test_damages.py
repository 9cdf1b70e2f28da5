"""Each damage is found, in its place and its row; and no rule is without a damage that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.format.event import ACID_STATS, KEY_INDEX
from mutation_api.format.layout import AcidVersion
from mutation_api.upkeep.verify.finding import RULES, Severity
from mutation_api.upkeep.verify.verify import verify_view
from tests.unit.upkeep.verify.damages import DAMAGES, Damage, delete_file, deletes, kinds
from tests.unit.upkeep.verify.sound_tables import LAYOUTS, SoundTable, view_of

ELSEWHERE = {"unregistered-partition", "row-statistics", "column-statistics", "read"}
"""Damages that only a metastore can tell, and one that stands for what no other rule says."""


@pytest.fixture(scope="module")
def sound_tables(tmp_path_factory: pytest.TempPathFactory) -> dict[AcidVersion, SoundTable]:
    """One of each layout; tests damage copies."""
    return {v: SoundTable(tmp_path_factory.mktemp(v.value), v) for v in LAYOUTS}


def _cases() -> list[object]:
    """Each damage in one layout always, in the others in the long run."""
    return [pytest.param(d, id=d.name, marks=() if d.is_main else pytest.mark.long) for d in DAMAGES]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("damage", _cases())
def test_damage_is_found(tmp_path: Path, damage: Damage, sound_tables: dict[AcidVersion, SoundTable]) -> None:
    """The rule, the file and the row are named; the report is not sound."""
    table = sound_tables[damage.version].copy(tmp_path)
    place, row = damage.do(table)
    report = verify_view(view_of(tmp_path, damage.version))
    assert not report.is_sound
    found = {(f.rule_name, f.location.path, f.row) for f in report.damages}
    assert (damage.rule_name, str(place), row) in found, "\n".join(map(str, report.findings))


def test_there_are_damages_of_every_kind() -> None:
    """More than forty, and every rule that damages can break is broken by one of them."""
    assert len({*kinds()}) >= 40
    broken = {d.rule_name for d in DAMAGES} | ELSEWHERE
    assert broken == {name for name, rule in RULES.items() if rule.severity is Severity.DAMAGE}


def test_a_row_that_hive_31_misplaced_is_a_notice(tmp_path: Path) -> None:
    """Its inserts by SELECT lie by another hash; readers do not care."""
    version = AcidVersion.V2_HIVE3
    table = SoundTable(tmp_path, version)
    other = table.of_bucket(1, range(100, 120))[0]
    events = table.inserts(3, 0, range(100, 120))
    table.write(table.file(3, 0), [*events[:-1], (*events[-1][:5], {"id": other, "msg": "x"})])
    report = verify_view(view_of(tmp_path, version))
    assert report.is_sound
    assert {f.rule_name for f in report.findings} == {"aborted-id", "bucket-hash-old"}


def test_the_key_index_of_trinos_deletes_is_a_notice(tmp_path: Path) -> None:
    """Trino writes its own write id and the number of deletes; the deletes count nevertheless."""
    version = AcidVersion.V2_HIVE4
    table = SoundTable(tmp_path, version)
    before = verify_view(view_of(tmp_path, version)).row_count
    count = len(deletes(table, 0))
    of_trino = f"2,{table.field(0)},{count - 1};".encode()
    table.write(
        delete_file(table, 0), deletes(table, 0), metadata=lambda entries: {**entries, KEY_INDEX: of_trino}
    )
    report = verify_view(view_of(tmp_path, version))
    assert report.is_sound
    assert report.row_count == before
    found = [f for f in report.findings if f.rule_name == "key-index-of-deletes"]
    assert [f.location.path for f in found] == [str(delete_file(table, 0))]
    assert "would reappear" in found[0].rule.advice


@pytest.mark.parametrize(("version", "counted"), [(AcidVersion.V2_HIVE3, 1), (AcidVersion.V2_HIVE4, 0)])
def test_the_counts_of_trinos_deletes_are_a_notice(
    tmp_path: Path, version: AcidVersion, counted: int
) -> None:
    """Trino counts the deletes of the last stripe; Hive 3.1 skips the file only if it counts none."""
    table = SoundTable(tmp_path, version)
    of_trino = {ACID_STATS: f"0,0,{counted}".encode()}
    table.write(delete_file(table, 0), deletes(table, 0), metadata=lambda entries: entries | of_trino)
    report = verify_view(view_of(tmp_path, version))
    assert report.is_sound
    found = [f for f in report.findings if f.rule_name == "acid-stats-of-deletes"]
    assert [f.location.path for f in found] == [str(delete_file(table, 0))]
    assert "would reappear" in found[0].rule.advice
