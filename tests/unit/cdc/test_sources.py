"""All change sources are made in one way."""

from __future__ import annotations

import inspect

import pytest

import mutation_api.cdc

SOURCES = {
    "CanalSource": ["files", "name"],
    "CollectorSource": ["files", "name"],
    "DebeziumSource": ["files", "name"],
    "MaxwellSource": ["files", "name"],
    "MySqlSource": ["address", "database"],
    "TungstenSource": ["staging", "service"],
}


@pytest.mark.parametrize(("name", "first"), SOURCES.items())
def test_sources_are_made_in_one_way(name: str, first: list[str]) -> None:
    """The arguments that name the log come first; all others are given by name and may be left out."""
    parameters = inspect.signature(getattr(mutation_api.cdc, name)).parameters.values()
    assert [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == first
    others = [each for each in parameters if each.name not in first]
    assert all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in others)


def test_all_sources_are_known() -> None:
    """Those above are those that the front door has."""
    names = {name for name in mutation_api.cdc.__all__ if name.endswith("Source")} - {"PositionSource"}
    assert names == {"ChangeSource", "LocalChangeSource", *SOURCES}
