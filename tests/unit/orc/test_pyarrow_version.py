"""A pyarrow that reads ORC wrongly is refused, and pip knows the same bound."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.orc.format.checked_file import OLDEST, check_version

SETTINGS = Path(__file__).parents[3] / "setup.cfg"


@pytest.mark.parametrize("version", ["18.0.0", "23.0.1", "24.0.0", "24.0.0.dev3"])
def test_an_old_one_is_refused(version: str) -> None:
    """The message names it, and what to install."""
    with pytest.raises(
        ConfigurationError, match=rf"pyarrow {version} is too old.* pyarrow {OLDEST} or newer"
    ):
        check_version(version)


@pytest.mark.parametrize("version", ["25.0.0", "26.0.1", "100.1.dev5", "unknown"])
def test_others_are_not(version: str) -> None:
    """Also one whose version cannot be read."""
    check_version(version)


def test_the_requirements_say_the_same() -> None:
    """Of ``setup.cfg``."""
    parser = configparser.ConfigParser()
    parser.read(SETTINGS, encoding="utf-8")
    assert f"pyarrow >={OLDEST}" in parser["options"]["install_requires"].split("\n")
