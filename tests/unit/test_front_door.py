"""The front doors: what users import, what it costs, and that what we show to users goes through them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutation_api import ApplySummary
from mutation_api.cdc import BatchReport, DisableReport
from tests.public_names import FRONT_DOORS, public_names

ROOT = Path(__file__).parents[2]
DOORS = {door.__name__ for door in FRONT_DOORS} | {"metastore_client.testing"}
HEAVY = ("boto3", "hdfs_native", "numpy", "pandas", "pyarrow", "pymysql", "pyorc", "pyspark", "thrift")

INSIDE = {
    "benchmarks/bucket_hash.py": "measures the resolver on batches of the size that tasks get",
    "benchmarks/publish.py": "counts the requests of single storage operations",
    "benchmarks/writing/storage_case.py": "measures the bare storage as its baseline",
    "benchmarks/json_logs.py": "reading and reducing without what ingest does before and after",
    "benchmarks/data/message_reading.py": "the same",
    "benchmarks/feed.py": "sends a feed's messages without the feed, and runs a command, as its baselines",
}
"""Benchmarks that measure a piece users never touch, and why."""

SHOWN = [*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _inner_imports(source: str) -> list[str]:
    """Our modules behind the front doors that a program imports from."""
    nodes = ast.walk(ast.parse(source))
    modules = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    nodes = ast.walk(ast.parse(source))
    modules += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    ours = [m for m in modules if m.split(".")[0] in ("mutation_api", "metastore_client")]
    return [m for m in ours if m not in DOORS]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_and_benchmarks_use_the_front_doors(path: Path) -> None:
    """A user who copies a line finds every name in one package."""
    found = _inner_imports(path.read_text(encoding="utf-8"))
    if str(path.relative_to(ROOT)) in INSIDE:
        assert found, "it needs no exception any more"
    else:
        assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_front_doors(page: Path) -> None:
    """Code on pages likewise."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert [_inner_imports(block) for block in blocks] == [[] for _ in blocks]


def test_importing_brings_nothing_heavy() -> None:
    """Packages are imported when a name that needs them is first used."""
    program = "import sys, mutation_api.cdc, mutation_api.upkeep, metastore_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"mutation_api", "metastore_client"} <= loaded
    assert loaded & set(HEAVY) == set()


@pytest.mark.parametrize("door", FRONT_DOORS, ids=lambda door: door.__name__)
def test_every_name_is_there(door: object) -> None:
    """The stub names what the modules define; nothing is named twice."""
    names = list(getattr(door, "__all__"))  # noqa: B009
    assert len(set(names)) == len(names)
    assert all(hasattr(door, name) for name in names)


def test_the_public_names_are_the_known_ones() -> None:
    """A change for users is made knowingly: write the file anew (see tests/public_names.py), and the log."""
    known = (ROOT / "tests/golden/public_names.txt").read_text(encoding="utf-8").splitlines()
    assert public_names() == known


PARTS = ("StepSummary", "TableReport", "TableSummary")

REPORTS = sorted(
    {
        found
        for door in FRONT_DOORS
        for name in door.__all__
        if name.endswith(("Report", "Summary")) and isinstance(found := getattr(door, name), type)
    },
    key=lambda found: found.__name__,
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_every_report_is_shown_as_text_and_as_a_dict(report: type) -> None:
    """Some only as parts of others, which show them."""
    assert callable(getattr(report, "to_dict", None)) or report.__name__ in PARTS


def test_reports_of_changes_are_json() -> None:
    """Those of an apply, of a batch, and of a table that follows a source."""
    summary = ApplySummary("d.t", 7, 3, 0, 0, ("day=1",), 1, 1, 640, 0.0, 1.5)
    batch = BatchReport(4, 7, {"d.t": summary}).to_dict()
    assert json.loads(json.dumps(batch))["tables"]["d.t"] == {
        "table": "d.t",
        "txn_id": 7,
        "inserted": 3,
        "updated": 0,
        "deleted": 0,
        "partitions": ["day=1"],
        "bucket_count": 1,
        "file_count": 1,
        "byte_count": 640,
        "verify_seconds": 0.0,
        "write_seconds": 1.5,
    }
    left = DisableReport("d.t", ("trigger x",), ("trigger y: no right",)).to_dict()
    assert json.loads(json.dumps(left)) == {
        "table": "d.t",
        "removed": ["trigger x"],
        "left": ["trigger y: no right"],
    }
