"""Collects what tests marked ``feature`` prove, and compares it with the table in the README.

``@pytest.mark.feature(name, …)``: the test proves that the features work on the line of Hive that it runs on,
which its parameter, its judge or ``lines=[…]`` tells. ``refused=why``: that the product refuses them there;
``says=text``: that they are otherwise; each for all lines, or by line.

Outcomes go into a file below ``.cache``. A run of everything fails if the README does not say what the tests
prove. ``--write-features`` writes the table, from this run and, unless it runs everything, those before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.feature_table import KERBEROS_FEATURES, LINES, Claim, cells, differences, in_readme, replaced
from tests.fix_judge import FIXTURES

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
OUTCOMES = ROOT / ".cache" / "features.json"
PROPERTY = "feature"

_WORKER_GROUP = re.compile(r"@[^\]@]*$")
"""What fix_workers puts behind the id of a test."""

_LINE_OF_JUDGE = {fixture: line for line, fixture in FIXTURES.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    group = parser.getgroup("hive-mutation-api")
    group.addoption("--write-features", action="store_true", help="write the README's table of features")


def pytest_configure(config: pytest.Config) -> None:
    """Gather in the one process that hears of all tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Gatherer(config), "features")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each marked test its claims; reports carry them to whoever gathers the outcomes."""
    for item in items:
        for claim in claims_of(item):
            item.user_properties.append((PROPERTY, [claim.feature, claim.line, claim.text]))


def claims_of(item: pytest.Item) -> Iterator[Claim]:
    """What a test says it proves. Raises ValueError for a feature that the table does not have."""
    for mark in item.iter_markers("feature"):
        for line in mark.kwargs.get("lines") or [line_of(item)]:
            why, text = (_of_line(mark.kwargs.get(name, ""), line) for name in ("refused", "says"))
            text = text or (f"refused: {why}" if why else "works")
            yield from (Claim(name, line, text) for name in mark.args)


def _of_line(value: str | Mapping[str, str], line: str) -> str:
    return value if isinstance(value, str) else value.get(line, "")


def line_of(item: pytest.Item) -> str:
    """The line of Hive that a test runs on. Raises ValueError if there is not exactly one."""
    callspec = getattr(item, "callspec", None)
    given = [] if callspec is None else [v for v in callspec.params.values() if v in LINES]
    judges = [line for name, line in _LINE_OF_JUDGE.items() if name in getattr(item, "fixturenames", ())]
    found = sorted({*given} or {*judges})
    if len(found) != 1:
        raise ValueError(f"{item.nodeid}: on which line of Hive? found {found}; say lines=…")
    return found[0]


class Gatherer:
    """Gathers outcomes, and compares them with the README at the end or writes it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.outcomes: dict[str, dict[str, Any]] = {}
        self.messages: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a marked test: it has passed unless one of its parts has not."""
        claims = [value for name, value in report.user_properties if name == PROPERTY]
        if claims:
            name = _WORKER_GROUP.sub("", report.nodeid)
            entry = self.outcomes.setdefault(name, {"claims": claims, "passed": True})
            entry["passed"] = entry["passed"] and report.passed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare, or write; a README that says something else fails the run."""
        if not self.outcomes:
            return
        is_whole_run = self.is_whole_run()
        known = self.remember(is_whole_run=is_whole_run)
        readme = README.read_text(encoding="utf-8")
        if self.config.getoption("--write-features"):
            README.write_text(replaced(readme, self.said(known, readme)), encoding="utf-8")
            self.messages = [f"features: written to {README.name}"]
            return
        wrong = differences(in_readme(readme), self.said(known, readme)) if is_whole_run else []
        self.messages = [f"features: {each}; --write-features writes the table" for each in wrong]
        if wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what differs."""
        for message in self.messages:
            terminalreporter.write_line(message)

    def is_whole_run(self) -> bool:
        """Whether no test was left out by name, mark or path."""
        options = self.config.option
        chosen = options.keyword or options.markexpr or options.history_seed is not None
        return not chosen and self.config.args_source is pytest.Config.ArgsSource.TESTPATHS

    def said(self, known: Mapping[str, Mapping[str, Any]], readme: str) -> dict[tuple[str, str], str]:
        """What the tests say; where those with Kerberos are left out, the README is believed."""
        found = cells(proven(known))
        if not self.config.getoption("--kerberos"):
            found |= {key: text for key, text in in_readme(readme).items() if key[0] in KERBEROS_FEATURES}
        return found

    def remember(self, *, is_whole_run: bool) -> dict[str, dict[str, Any]]:
        """Add to the outcomes of earlier runs, or replace them after a whole run; returns them all."""
        known: dict[str, dict[str, Any]] = {}
        if OUTCOMES.exists() and not is_whole_run:
            known = json.loads(OUTCOMES.read_text(encoding="utf-8"))
        known |= self.outcomes
        OUTCOMES.parent.mkdir(exist_ok=True)
        OUTCOMES.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        return known


def proven(outcomes: Mapping[str, Mapping[str, Any]]) -> list[Claim]:
    """What the tests that passed claim."""
    return [Claim(*claim) for entry in outcomes.values() if entry["passed"] for claim in entry["claims"]]
