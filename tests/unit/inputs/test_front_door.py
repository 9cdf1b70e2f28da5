"""The front door of change sources: what it needs, and that all sources are made in one way."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from mutation_api import inputs

SOURCES = {
    "CanalSource": ["files", "name"],
    "CollectorSource": ["files", "name"],
    "DebeziumSource": ["files", "name"],
    "MaxwellSource": ["files", "name"],
    "MySqlSource": ["address", "database"],
    "TungstenSource": ["staging", "service"],
}


@pytest.mark.slow
def test_packages_of_mysql_are_imported_on_first_use() -> None:
    """Not before MySqlSource is used."""
    lines = (
        "import sys",
        "from mutation_api import inputs",
        "assert not {'pymysql', 'pymysqlreplication'} & set(sys.modules)",
        "inputs.MySqlSource",
        "assert {'pymysql', 'pymysqlreplication'} <= set(sys.modules)",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_names_that_are_not_there() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match=r"module 'mutation_api\.inputs' has no attribute 'JsonSource'"):
        _ = inputs.JsonSource  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "first"), SOURCES.items())
def test_sources_are_made_in_one_way(name: str, first: list[str]) -> None:
    """The arguments that identify the log come first; all others are optional and given by name."""
    parameters = inspect.signature(getattr(inputs, name)).parameters.values()
    assert [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD] == first
    others = [each for each in parameters if each.name not in first]
    assert all(each.kind is each.KEYWORD_ONLY and each.default is not each.empty for each in others)


def test_all_sources_are_known() -> None:
    """Those above are those that the front door has."""
    assert sorted(SOURCES) == [name for name in inputs.__all__ if name.endswith("Source") and name in SOURCES]
    assert [name for name in inputs.__all__ if name.endswith("Source") and name not in SOURCES] == [
        "ChangeSource"
    ]
