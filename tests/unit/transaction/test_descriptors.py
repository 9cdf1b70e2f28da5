"""The check of a table's location, beside other clients that begin at the same moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mutation_api.errors import TableNotMutableError
from mutation_api.format.layout import AcidVersion
from mutation_api.storage import local
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.transaction.descriptors import check_location
from mutation_api.transaction.staging import PROBE_PREFIX

_UNLINK = os.unlink


def descriptor(place: Path) -> AcidTable:
    """A table there."""
    columns = (AcidColumn("id", "int"),)
    return AcidTable("default", "t", Location.parse(str(place)), columns, (), 0, (), AcidVersion.V2_HIVE4)


def _sweeping(place: Path, step: Callable[..., object]) -> Callable[..., object]:
    """The step of a client, just after another one has removed its probe."""

    def swept(*arguments: object) -> object:
        for probe in place.glob(f"{PROBE_PREFIX}*"):
            _UNLINK(probe)
        return step(*arguments)

    return swept


@pytest.mark.parametrize("step", ["_force_to_disk", "delete"])
def test_a_probe_that_another_client_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It takes it for abandoned: at any moment of its short life."""
    if step == "delete":
        monkeypatch.setattr(os, "unlink", _sweeping(tmp_path, os.unlink))
        monkeypatch.setattr(os, "remove", _sweeping(tmp_path, os.remove))
    else:
        monkeypatch.setattr(local, step, _sweeping(tmp_path, getattr(local, step)))
    check_location(descriptor(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_location_that_is_gone(tmp_path: Path) -> None:
    """Nothing was removed by others then."""
    with pytest.raises(TableNotMutableError, match="cannot be reached"):
        check_location(descriptor(tmp_path / "gone"))
