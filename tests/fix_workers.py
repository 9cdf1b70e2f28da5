"""How tests are spread over worker processes: all tests of one judge go to one, so that it starts once.

Tests without a judge stay together by file. ``-n 0`` runs everything in one process.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fix_judge import FIXTURES
from tests.run_notes import NOTES

_STORAGES = {"hdfs", "hdfs_ha", "s3", "gcs", "azure"}
_JUDGES = (*FIXTURES.values(), "hive31_notifying", "hive41_notifying", *_STORAGES)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the group of each test that does not name its own."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
        _put_into_id(item)


def _put_into_id(item: pytest.Item) -> None:
    """Do what pytest-xdist 3.8 does to spread groups, and fails to do in pytest 9.2: an id has a suffix."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None and hasattr(item, "_id") and hasattr(item.config, "workerinput"):
        item._id = type(item._id).parse(f"{item.nodeid}@{mark.args[0]}")


def _group(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    values = [] if callspec is None else callspec.params.values()
    texts = {value for value in values if isinstance(value, str)}
    lines = texts & FIXTURES.keys()
    elsewhere = ({*getattr(item, "fixturenames", ())} | texts) & _STORAGES
    named = elsewhere or {FIXTURES[line] for line in lines}
    used = named or {*_JUDGES} & {*getattr(item, "fixturenames", ())}
    return min(used, default=item.nodeid.partition("::")[0])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's notes over."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["notes"] = session.config.stash[NOTES].to_plain()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take a worker's notes; one that died has none, and its test has failed."""
    notes = getattr(node, "workeroutput", {}).get("notes")
    if notes is not None:
        node.config.stash[NOTES].add(notes)
