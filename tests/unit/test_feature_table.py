"""The tables of features: what they show, what they refuse, and that they find where the page is wrong."""

from __future__ import annotations

import pytest

from tests.support.doc_blocks import DOCS
from tests.support.feature_table import (
    FEATURES,
    GROUPS,
    Claim,
    Outcome,
    cells,
    claimed,
    differences,
    in_page,
    marks,
    remembered,
    replaced,
    shown,
)

FIRST, SECOND = FEATURES[0], GROUPS["storage"][0]
PASSED: Outcome = {"claims": [[FIRST, "2.3", "works"]], "state": "passed"}
LEFT_OUT: Outcome = {"claims": [[SECOND, "4.1", "works"]], "state": "left out"}
PAGE = "before\n" + "\nbetween\n".join("{}\nold\n{}".format(*marks(group)) for group in GROUPS) + "\nafter\n"


def test_what_is_written_is_read_back() -> None:
    """Only what tests said stands in the tables, each row in its own; the text around them stays."""
    known = cells(
        [Claim(FIRST, "2.3", "works"), Claim(SECOND, "4.1", "refused: so"), Claim(FIRST, "2.3", "works")]
    )
    written = replaced(PAGE, known)
    assert written.startswith(f"before\n{marks('features')[0]}\n| ")
    assert written.endswith(f"|\n{marks('spark')[1]}\nafter\n")
    assert written.index(FIRST) < written.index(marks("storage")[0]) < written.index(f"| {SECOND} |")
    assert written.count("\nbetween\n") == 2
    assert in_page(written) == known == {(FIRST, "2.3"): "works", (SECOND, "4.1"): "refused: so"}
    assert replaced(written, known) == written


def test_differences_are_found_both_ways() -> None:
    """A cell that no test supports, one that is missing, and one that says something else."""
    page = {(FIRST, "2.3"): "works", (FIRST, "3.1"): "works"}
    proven = {(FIRST, "2.3"): "refused: so", (FIRST, "4.1"): "works"}
    assert [text.partition(":")[0] for text in differences(page, proven)] == [
        f"{FIRST} on Hive {line}" for line in ("2.3", "3.1", "4.1")
    ]
    assert differences(proven, proven) == []


def test_contradictions_and_strange_names_are_refused() -> None:
    """Two tests that say different things; a feature or line without a place; a page without marks."""
    with pytest.raises(ValueError, match="another 'refused: so'"):
        cells([Claim(FIRST, "2.3", "works"), Claim(FIRST, "2.3", "refused: so")])
    with pytest.raises(ValueError, match="no row or column"):
        Claim("magic", "2.3", "works")
    with pytest.raises(ValueError, match="no row or column"):
        Claim(FIRST, "1.2", "works")
    with pytest.raises(ValueError, match="the page has no"):
        replaced("nothing", {})


def test_a_whole_run_counts_what_was_left_out_as_claimed() -> None:
    """The page must say what long tests claim; that of a failed test it must not say."""
    now: dict[str, Outcome] = {"quick": PASSED, "long": LEFT_OUT}
    page = {(FIRST, "2.3"): "works", (SECOND, "4.1"): "works"}
    assert differences(page, cells(claimed(now, "passed", "left out"))) == []
    page[SECOND, "4.1"] = "refused: so"
    assert differences(page, cells(claimed(now, "passed", "left out"))) == [
        f"{SECOND} on Hive 4.1: page 'refused: so', tests 'works'"
    ]
    now["long"] = {**LEFT_OUT, "state": "failed"}
    assert cells(claimed(now, "passed", "left out")) == {(FIRST, "2.3"): "works"}


def test_what_was_left_out_is_shown_only_where_the_page_has_it() -> None:
    """Nothing is written that no run has proven; what stands there stays."""
    known: dict[str, Outcome] = {"quick": PASSED, "long": LEFT_OUT}
    proven = {(FIRST, "2.3"): "works"}
    assert shown(known, {}) == shown(known, {(SECOND, "4.1"): "refused: so"}) == proven
    assert shown(known, {(SECOND, "4.1"): "works"}) == {**proven, (SECOND, "4.1"): "works"}
    assert shown({**known, "long": {**LEFT_OUT, "state": "passed"}}, {}) == {
        **proven,
        (SECOND, "4.1"): "works",
    }


def test_a_test_left_out_keeps_what_an_earlier_run_showed() -> None:
    """Unless it claims something else now; a whole run forgets tests that are no more."""
    earlier: dict[str, Outcome] = {
        "long": {**LEFT_OUT, "state": "passed"},
        "changed": {"claims": [[FIRST, "3.1", "refused: so"]], "state": "passed"},
        "gone": PASSED,
    }
    changed: Outcome = {"claims": [[FIRST, "3.1", "works"]], "state": "left out"}
    now: dict[str, Outcome] = {"quick": PASSED, "long": LEFT_OUT, "changed": changed, "new": LEFT_OUT}
    whole = remembered(earlier, now, is_whole_run=True)
    assert whole == {**now, "long": earlier["long"]}
    assert remembered(earlier, now, is_whole_run=False) == {**whole, "gone": PASSED}
    failed: Outcome = {**LEFT_OUT, "state": "failed"}
    assert remembered(earlier, {"long": failed}, is_whole_run=True) == {"long": failed}


def test_the_page_is_as_it_would_be_written() -> None:
    """Its rows, their order and their form; what it says, a whole run compares with the tests."""
    page = (DOCS / "compatibility.md").read_text(encoding="utf-8")
    assert len(in_page(page)) > 100
    assert replaced(page, in_page(page)) == page
