"""The table of features: what it shows, what it refuses, and that it finds where the README is wrong."""

from __future__ import annotations

import pytest

from tests.support.feature_table import (
    BEGIN,
    END,
    FEATURES,
    Claim,
    Outcome,
    cells,
    claimed,
    differences,
    in_readme,
    remembered,
    replaced,
    shown,
)

FIRST, SECOND = FEATURES[:2]
PASSED: Outcome = {"claims": [[FIRST, "2.3", "works"]], "state": "passed"}
LEFT_OUT: Outcome = {"claims": [[SECOND, "4.1", "works"]], "state": "left out"}
README = f"before\n{BEGIN}\nold\n{END}\nafter\n"


def test_what_is_written_is_read_back() -> None:
    """Only what tests said stands in the table; the text around it stays."""
    known = cells(
        [Claim(FIRST, "2.3", "works"), Claim(SECOND, "4.1", "refused: so"), Claim(FIRST, "2.3", "works")]
    )
    written = replaced(README, known)
    assert written.startswith(f"before\n{BEGIN}\n| ")
    assert written.endswith(f"|\n{END}\nafter\n")
    assert in_readme(written) == known == {(FIRST, "2.3"): "works", (SECOND, "4.1"): "refused: so"}
    assert replaced(written, known) == written


def test_differences_are_found_both_ways() -> None:
    """A cell that no test supports, one that is missing, and one that says something else."""
    readme = {(FIRST, "2.3"): "works", (FIRST, "3.1"): "works"}
    proven = {(FIRST, "2.3"): "refused: so", (FIRST, "4.1"): "works"}
    assert [text.partition(":")[0] for text in differences(readme, proven)] == [
        f"{FIRST} on Hive {line}" for line in ("2.3", "3.1", "4.1")
    ]
    assert differences(proven, proven) == []


def test_contradictions_and_strange_names_are_refused() -> None:
    """Two tests that say different things; a feature or line without a place; a README without marks."""
    with pytest.raises(ValueError, match="another 'refused: so'"):
        cells([Claim(FIRST, "2.3", "works"), Claim(FIRST, "2.3", "refused: so")])
    with pytest.raises(ValueError, match="no row or column"):
        Claim("magic", "2.3", "works")
    with pytest.raises(ValueError, match="no row or column"):
        Claim(FIRST, "1.2", "works")
    with pytest.raises(ValueError, match="the README has no"):
        replaced("nothing", {})


def test_a_whole_run_counts_what_was_left_out_as_claimed() -> None:
    """The README must say what long tests claim; that of a failed test it must not say."""
    now: dict[str, Outcome] = {"quick": PASSED, "long": LEFT_OUT}
    readme = {(FIRST, "2.3"): "works", (SECOND, "4.1"): "works"}
    assert differences(readme, cells(claimed(now, "passed", "left out"))) == []
    readme[SECOND, "4.1"] = "refused: so"
    assert differences(readme, cells(claimed(now, "passed", "left out"))) == [
        f"{SECOND} on Hive 4.1: README 'refused: so', tests 'works'"
    ]
    now["long"] = {**LEFT_OUT, "state": "failed"}
    assert cells(claimed(now, "passed", "left out")) == {(FIRST, "2.3"): "works"}


def test_what_was_left_out_is_shown_only_where_the_readme_has_it() -> None:
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
