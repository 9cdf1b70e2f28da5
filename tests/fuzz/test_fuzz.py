"""Damaged files, messages and answers: errors of ours, in bounded time and memory, and nothing unseen.

A case is named by its seed: ``python -m tests.fuzz.children SEED`` repeats it.
"""

from __future__ import annotations

import pytest

from metastore_client.client import CompactionQueue, MetastoreClient
from tests.fuzz import answer_cases, children
from tests.fuzz.answer_cases import CALLS
from tests.fuzz.children import failures
from tests.fuzz.kinds import KINDS, kind_of
from tests.fuzz.sound_server import RELEASES

pytestmark = pytest.mark.slow

QUICK, LONG = 500, 20_000
PARTS = 4
"""Tests that run side by side."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_damage_is_refused_or_seen(part: int, request: pytest.FixtureRequest) -> None:
    """No signal, no error of another library, no more memory or time than allowed, no other rows in silence.

    What verify cannot see: texts, bytes, days and moments that became others of the same length between the
    least and the greatest of their column, as ORC records no sums of them; and floats beside a NaN.
    """
    count = LONG if request.config.getoption("--long") else QUICK
    found = [*failures(range(part, count, PARTS))]
    assert not found, "\n\n".join(map(str, found))


def test_every_kind_is_tried() -> None:
    """The seeds of the quick run go through all kinds, in each part."""
    for part in range(PARTS):
        assert {kind_of(seed) for seed in range(part, QUICK, PARTS)} <= set(KINDS)
    assert {kind_of(seed) for seed in range(QUICK)} == set(KINDS)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("raise TypeError('raw')", "TypeError: raw"),
        ("os.kill(os.getpid(), 11)", "the process ended with -11"),
        ("bytearray(b'x') * (300 << 20)", "MiB of memory"),
        ("time.sleep(600)", "longer than"),
    ],
)
def test_a_fault_is_named_by_its_seed(monkeypatch: pytest.MonkeyPatch, fault: str, what: str) -> None:
    """And the cases behind it run all the same; what runs instead of them knows the seed."""
    monkeypatch.setenv(children.FAULT, f"if seed != 4: {fault}")
    if "sleep" in fault:
        monkeypatch.setattr(children, "PATIENCE_SECONDS", 5)
    found = [*failures([3, 4, 5])]
    assert [each.seed for each in found] == [3, 5]
    assert all(what in each.what for each in found)


@pytest.mark.parametrize("error", ["CorruptFileError('damaged')", "MetastoreError('broken')"])
def test_errors_of_ours_are_no_faults(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    """Nothing is found, and the case has run: the same program fails where it raises something else."""
    monkeypatch.setenv(children.FAULT, f"raise {error} if seed == 3 else KeyError('raw')")
    (found,) = failures([3, 4])
    assert found.seed == 4
    assert "KeyError: 'raw'" in found.what


def test_every_call_of_the_client_is_tried() -> None:
    """A call that is added to the protocol is added here."""
    protocols = (MetastoreClient, CompactionQueue)
    names = [(protocol, name) for protocol in protocols for name in dir(protocol)]
    known = {name for protocol, name in names if name[0] != "_" and callable(getattr(protocol, name))}
    assert {*CALLS, "close", "together", "compaction_job"} == known


def test_a_sound_server_is_called_and_refuses_nothing() -> None:
    """A call that none of the drawn cases tries is answered, too."""
    counts = {
        (name, release): answer_cases.call_count(name, release) for name in CALLS for release in RELEASES
    }
    assert {name for name, _ in counts} - {name for (name, _), count in counts.items() if count} == set()
