"""The table of features: what it shows, what it refuses, and that it finds where the README is wrong."""

from __future__ import annotations

import pytest

from tests.support.feature_table import BEGIN, END, FEATURES, Claim, cells, differences, in_readme, replaced

FIRST, SECOND = FEATURES[:2]
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
