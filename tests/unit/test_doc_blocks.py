"""Every program on a page is run by a test, or says here why it cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.doc_blocks import DOCS, README, ROOT, blocks, programs

FRONT = "tests/integration/front"
OTHER_MACHINE = "names what only the reader's machine has"
NO_KUBERNETES = "there is no Kubernetes here; what Spark asks it for is tested in test_kubernetes_pod.py"


@dataclass(frozen=True)
class RunBy:
    """The tests that run a page's programs, ``file::function``, and the blocks that none runs, and why."""

    tests: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


GUIDE = RunBy((f"{FRONT}/test_guides.py::test_its_blocks_run",))
PAGES: Mapping[str, RunBy] = {
    "README.md": RunBy((f"{FRONT}/test_readme.py::test_the_example_of_the_readme",)),
    "docs/index.md": RunBy(
        ("tests/unit/test_doc_blocks.py::test_the_first_page_has_the_example_of_the_readme",)
    ),
    "docs/start/local.md": RunBy((f"{FRONT}/test_readme.py::test_the_tour_runs_and_prints_what_it_says",)),
    "docs/start/cluster.md": RunBy(
        (f"{FRONT}/test_start_cluster.py::test_the_commands_of_the_page",),
        {"install": "test_wheel.py installs what was built here", "where": OTHER_MACHINE},
    ),
    "docs/change-feed.md": RunBy((f"{FRONT}/test_pages.py::test_change_feed",)),
    "docs/compaction.md": RunBy(
        (
            "tests/integration/upkeep/test_compactor.py::test_the_commands_of_the_page",
            "tests/integration/upkeep/test_unqueued_compactions.py::test_the_command_of_the_page",
        )
    ),
    "docs/erasure.md": RunBy(("tests/integration/erasures/test_erasure.py::test_the_programs_of_the_page",)),
    "docs/export.md": RunBy((f"{FRONT}/test_pages.py::test_export",)),
    "docs/cookbook.md": RunBy(
        ("tests/unit/test_cookbook.py::test_the_recipes_run_and_print_what_the_page_shows",)
    ),
    "docs/guides/alter-table.md": GUIDE,
    "docs/guides/append.md": GUIDE,
    "docs/guides/change-rows.md": GUIDE,
    "docs/guides/delete.md": GUIDE,
    "docs/guides/from-mutation-api.md": GUIDE,
    "docs/guides/from-warehouse-connector.md": GUIDE,
    "docs/guides/history.md": GUIDE,
    "docs/guides/ingest.md": RunBy(
        (*GUIDE.tests, f"{FRONT}/test_guides.py::test_the_lines_from_mysql_to_hive"),
    ),
    "docs/guides/merge.md": GUIDE,
    "docs/guides/overwrite.md": GUIDE,
    "docs/guides/read.md": GUIDE,
    "docs/guides/truncate.md": GUIDE,
    "docs/guides/update.md": GUIDE,
    "docs/guides/upsert.md": GUIDE,
    "docs/incremental-update.md": RunBy((f"{FRONT}/test_pages.py::test_incremental_update",)),
    "docs/kafka.md": RunBy((f"{FRONT}/test_pages.py::test_kafka",)),
    "docs/operations.md": RunBy(
        ("tests/integration/upkeep/test_operations_doc.py::test_the_commands_of_the_page",)
    ),
    "docs/replication.md": RunBy(
        ("tests/integration/replication/test_replication_doc.py::test_the_blocks_of_the_page",)
    ),
    "docs/storage.md": RunBy((f"{FRONT}/test_pages.py::test_storage",)),
    "docs/streams.md": RunBy((f"{FRONT}/test_pages.py::test_streams",)),
    "docs/clusters.md": RunBy(
        (
            "tests/integration/clusters/test_clusters_doc.py::test_on_yarn",
            "tests/integration/clusters/test_clusters_doc.py::test_on_a_standalone_cluster",
        ),
        {
            "prepare": "the same archive is packed once for all tests (fix_yarn.packed_python)",
            "options": "lines for comparison; test_the_commands_are_understood parses them",
            "kubernetes client": NO_KUBERNETES,
            "kubernetes cluster": NO_KUBERNETES,
            "kerberos": "test_yarn_kerberos.py submits a job of its own so",
        },
    ),
}
ALL = [README, *sorted(DOCS.rglob("*.md"))]
INDENTED = re.compile(r"^(?: {4}|\t)(?:hive-mutate |from \w+ import |import \w+)", re.MULTILINE)


def name(page: Path) -> str:
    """How the registry names it."""
    return str(page.relative_to(ROOT))


def test_every_page_with_programs_is_claimed() -> None:
    """And no other page is."""
    assert {name(page) for page in ALL if programs(page)} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_its_tests_exist_and_name_it(page: str) -> None:
    """The file has the function, and names the page or its folder; blocks left out are on the page."""
    run_by = PAGES[page]
    source = ""
    for test in run_by.tests:
        path, _, function = test.partition("::")
        source += (ROOT / path).read_text(encoding="utf-8")
        assert f"def {function}(" in source, test
    assert Path(page).name in source or "README" in source or f'"{Path(page).parent.name}"' in source
    names = {each.name for each in programs(ROOT / page)}
    assert set(run_by.left_out) <= names
    if page == "docs/clusters.md":
        ours = names - set(run_by.left_out)
        assert [
            each for each in sorted(ours) if f'"{each}"' not in source and f"[{each}]" not in source
        ] == []


def test_the_first_page_has_the_example_of_the_readme() -> None:
    """Which runs; the two show the same program and output."""
    assert blocks(DOCS / "index.md") == [each for each in blocks(README) if each.kind in {"python", "output"}]


@pytest.mark.parametrize("page", ALL, ids=name)
def test_no_program_hides_in_an_indented_block(page: Path) -> None:
    """Only fenced blocks are run."""
    assert INDENTED.findall(page.read_text(encoding="utf-8")) == []
