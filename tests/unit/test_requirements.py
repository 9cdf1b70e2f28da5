"""Every requirement of setup.cfg has bounds, and a reason for them above it."""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SETUP = Path(__file__).parents[2] / "setup.cfg"
OURS = "hive-mutation-api"
UNBOUNDED = "no upper bound:"


@dataclass(frozen=True)
class Required:
    """A requirement, where it stands, and the comment that holds for it."""

    where: str
    requirement: Requirement
    reason: str


def _required(text: str) -> list[Required]:
    """All requirements; a comment holds for the lines up to the next one, or to an empty line."""
    found: list[Required] = []
    section = where = reason = ""
    was_comment = False
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("["):
            section, where = words.strip("[]"), ""
        elif line.endswith("=") and not line.startswith(" "):
            where, reason = words.split()[0], ""
        elif not words:
            where, reason = "", ""
        elif words.startswith("#"):
            reason = f"{reason} {words.lstrip('# ')}" if was_comment else words.lstrip("# ")
        elif where == "install_requires" or (section == "options.extras_require" and where):
            found.append(Required(where, Requirement(words), reason))
        was_comment = words.startswith("#")
    return [each for each in found if each.requirement.name != OURS]


REQUIRED = _required(SETUP.read_text(encoding="utf-8"))


def test_all_are_found() -> None:
    """Nothing is hidden from this test: the parser that setuptools uses finds the same ones."""
    parser = configparser.ConfigParser()
    parser.read(SETUP, encoding="utf-8")
    known = [parser["options"]["install_requires"], *parser["options.extras_require"].values()]
    lines = [line for text in known for line in text.split("\n") if line and not line.startswith(OURS)]
    assert len(lines) > 30
    assert sorted(str(each.requirement) for each in REQUIRED) == sorted(
        str(Requirement(line)) for line in lines
    )


@pytest.mark.parametrize("each", REQUIRED, ids=lambda each: f"{each.where}-{each.requirement.name}")
def test_bounds_and_their_reason(each: Required) -> None:
    """A lower bound; an upper one, or why there is none; and what they rest on."""
    operators = {specifier.operator for specifier in each.requirement.specifier}
    assert operators & {">=", "=="}
    assert operators & {"<", "=="} or re.search(f"{UNBOUNDED} .", each.reason)
    assert each.reason
