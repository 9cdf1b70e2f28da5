"""Pages of commands say what ``--help`` says, of each kind and each action too."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence

import pytest

from mutation_api.cli.ingest.command import KINDS
from mutation_api.cli.main import SUBCOMMANDS, main
from mutation_api.cli.update.command import ACTIONS
from website.command_pages import COLUMNS, command_pages

COMMANDS = [
    *([name] for name in SUBCOMMANDS),
    *(["ingest", kind] for kind in KINDS),
    *(["update", action] for action in ACTIONS),
]
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
UNBREAKABLE = re.compile(r"^ +(?:\S+|\[--[\w-]+ \S+\])$")


@functools.cache
def pages() -> Mapping[str, str]:
    """All of them by their paths."""
    return dict(command_pages())


@pytest.mark.thorough(1)
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_page_has_every_option(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In the section of its command, with as many words as ``--help`` has."""
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    said = capsys.readouterr().out
    page = pages()[f"reference/commands/{words[0]}.md"]
    heading = f"# hive-mutate {words[0]}\n" if len(words) == 1 else f"## {' '.join(words)}\n"
    section = page.partition(heading)[2].partition("\n## ")[0]
    options = set(OPTION.findall(said))
    assert "--help" in options
    assert options - set(OPTION.findall(section)) == set()
    assert sorted(section.replace(" \\\n", " ").split()[-40:-1]) == sorted(said.split()[-39:])


@pytest.mark.parametrize("path", ["index", *SUBCOMMANDS])
def test_its_lines_fit_the_screen(path: str) -> None:
    """But those of one word, or of one option in a usage, that nothing can break."""
    block = re.findall(r"```text\n(.*?)```", pages()[f"reference/commands/{path}.md"], re.DOTALL)
    lines = "".join(block).splitlines()
    assert [line for line in lines if len(line) > COLUMNS and not UNBREAKABLE.match(line)] == []


def test_a_missing_package_is_named_without_a_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage without the options that the missing package would bring helps nobody."""
    monkeypatch.setitem(sys.modules, "mutation_api.cdc.mysql.mysql_source", None)
    monkeypatch.delitem(sys.modules, "mutation_api.cli.ingest.mysql", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["ingest", "mysql", "--source", "mysql://u@h/d"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("hive-mutate ingest mysql: error: needs the Python module")
    assert "usage:" not in said
