"""What holds for every test; fixtures are grouped by theme in ``fix_*.py``.

* ``--long`` also runs the tests marked ``long``; without it the summary says how many were left out.
* ``--kerberos`` also runs the tests marked ``kerberos``, for which a key server must be installed.
* ``--mysql-server PATH`` uses MySQL by this program of it instead of MariaDB.
* ``--judge-zone ZONE`` runs Hive in another time zone than UTC.
* ``--history-seed N`` runs the random history N alone, as its failure names it.
* ``--histories N`` tries N random histories of each kind; see ``fix_histories``.
* A test may be skipped for the reasons in ``ALLOWED_SKIP_REASONS`` only; any other skip fails the run.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Generator
from pathlib import Path

import hypothesis
import pytest

from metastore_client.java import JavaNotFoundError, find_java
from tests.support.run_notes import NOTES, RunNotes

pytest_plugins = [
    "tests.fixtures.fix_clock",
    "tests.fixtures.fix_newest",
    "tests.fixtures.fix_histories",
    "tests.fixtures.fix_judge",
    "tests.fixtures.fix_metastore",
    "tests.fixtures.fix_kafka",
    "tests.fixtures.fix_mysql",
    "tests.fixtures.fix_postgres",
    "tests.fixtures.fix_spark",
    "tests.fixtures.fix_workers",
    "tests.fixtures.fix_default_cases",
    "tests.fixtures.fix_features",
    "tests.fixtures.fix_hdfs",
    "tests.fixtures.fix_hive_elsewhere",
    "tests.fixtures.fix_kerberos",
    "tests.fixtures.fix_s3",
    "tests.fixtures.fix_gcs",
    "tests.fixtures.fix_azure",
    "tests.fixtures.fix_storage",
    "tests.fixtures.fix_hdfs_faults",
    "tests.fixtures.fix_yarn",
]

ALLOWED_SKIP_REASONS = frozenset({"the superuser may write everywhere"})

INTEGRATION = Path(__file__).parent / "integration"

VERSIONS_SHOWN = ("pyspark", "pyarrow", "pyorc", "thrift")

# A failing example is printed in a form that repeats it; machines differ too much for a deadline.
hypothesis.settings.register_profile("default run", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile("long run", deadline=None, print_blob=True, max_examples=200)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of this test suite."""
    group = parser.getgroup("hive-mutation-api")
    group.addoption("--long", action="store_true", help="also run the tests marked long")
    group.addoption(
        "--kerberos", action="store_true", help="also run the tests marked kerberos, which need a key server"
    )
    group.addoption(
        "--judge-zone", default="UTC", metavar="ZONE", help="run Hive in this time zone, as Java calls it"
    )
    group.addoption(
        "--history-seed", type=int, metavar="N", help="run the random history with this seed alone"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let Spark find the Java that this project finds, choose how many random examples are tried, and make
    room for the summary.
    """
    config.stash[NOTES] = RunNotes()
    hypothesis.settings.load_profile("long run" if config.getoption("--long") else "default run")
    try:
        os.environ["JAVA_HOME"] = str(find_java().parent.parent)
    except JavaNotFoundError:
        os.environ.pop("JAVA_HOME", None)  # the fixtures that need Java say what is missing


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the tests with judges, which are all slow, if only quick ones are asked for."""
    return True if config.option.markexpr == "not slow" and collection_path == INTEGRATION else None


def pytest_report_header() -> str:
    """Name the versions that a failure may depend on."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS_SHOWN)
    return f"versions: Python {platform.python_version()}, {packages}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long tests and those with Kerberos unless asked for, what another server than the run's has,
    or everything but one random history. All tests with judges are slow.
    """
    for item in items:
        if INTEGRATION in item.path.parents:
            item.add_marker("slow")
    seed = config.getoption("--history-seed")
    if not config.getoption("--kerberos"):
        _select(config, items, lambda item: item.get_closest_marker("kerberos") is None)
    kind = "MySQL" if config.getoption("--mysql-server") else "MariaDB"
    _select(config, items, lambda item: all(mark.args[0] == kind for mark in item.iter_markers("server")))
    if seed is not None:
        _select(config, items, lambda item: _seed(item) == seed)
    elif not config.getoption("--long"):
        config.stash[NOTES].left_out = _select(
            config, items, lambda item: item.get_closest_marker("long") is None
        )


def _select(config: pytest.Config, items: list[pytest.Item], is_wanted: Callable[[pytest.Item], bool]) -> int:
    """Leave the wanted ones; how many are left out."""
    left_out = [item for item in items if not is_wanted(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = filter(is_wanted, items)
    return len(left_out)


def _seed(item: pytest.Item) -> int | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("seed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a skip whose reason is not allowed."""
    report = yield
    _note_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Note a module that was skipped as a whole."""
    report = yield
    _note_skip(collector.config, report)
    return report


def _note_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if reason.removeprefix("Skipped: ") not in ALLOWED_SKIP_REASONS:
        config.stash[NOTES].bad_skips.add(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run in which something was skipped that should have run."""
    if session.config.stash[NOTES].bad_skips and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which judges were used (also if there was none), and what did not run."""
    if not config.getoption("--kerberos"):
        terminalreporter.write_line("kerberos: its tests left out; --kerberos runs them too")
    notes = config.stash[NOTES]
    terminalreporter.write_line(f"judges: {'; '.join(sorted(notes.judges)) or 'none used'}")
    if notes.left_out:
        terminalreporter.write_line(f"long: {notes.left_out} tests left out; --long runs them too")
    for skipped in sorted(notes.bad_skips):
        terminalreporter.write_line(
            f"skipped without an allowed reason, so the run fails: {skipped}", red=True
        )
