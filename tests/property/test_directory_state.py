"""What must hold for every choice of directories, whatever they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutation_api.errors import DirectoryStateError
from mutation_api.format.directory_state import choose_directories
from mutation_api.format.layout import AcidVersion
from tests.support.directory_cases import random_directories, random_snapshot

VERSIONS = st.sampled_from([AcidVersion.V1_LEGACY, AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4])


@given(st.randoms(use_true_random=False), VERSIONS)
def test_no_visible_id_is_lost(rng: random.Random, version: AcidVersion) -> None:
    """Every visible transaction above the base that has a directory lies in one that was chosen."""
    names, valid = random_directories(rng), random_snapshot(rng)
    try:
        state = choose_directories(names, {}, valid, version=version, location="/t")
    except DirectoryStateError as error:
        assert "not enough history" in str(error)
        assert any(name.startswith("base_") for name in names)
        return
    above = state.base.last if state.base else 0
    everything = choose_directories(
        [name for name in names if not name.startswith("base_")], {}, valid, version=version, location="/t"
    )
    for delta in everything.deltas:
        for txn in range(max(delta.first, above + 1), delta.last + 1):
            if valid.is_valid(txn):
                assert any(d.first <= txn <= d.last for d in state.deltas), (names, valid, txn)


@given(st.randoms(use_true_random=False), VERSIONS)
def test_chosen_and_obsolete_are_apart_and_order_does_not_matter(
    rng: random.Random, version: AcidVersion
) -> None:
    """A name is in one list at most, and listing order is the file system's affair."""
    names, valid = random_directories(rng), random_snapshot(rng)
    shuffled = rng.sample(names, len(names))
    try:
        state = choose_directories(names, {}, valid, version=version, location="/t")
    except DirectoryStateError:
        with pytest.raises(DirectoryStateError):
            choose_directories(shuffled, {}, valid, version=version, location="/t")
        return
    assert choose_directories(shuffled, {}, valid, version=version, location="/t") == state
    chosen = [d.name for d in state.deltas] + ([state.base.name] if state.base else [])
    assert len(set(chosen)) == len(chosen)
    assert not set(chosen) & set(state.obsolete)
