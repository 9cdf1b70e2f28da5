"""The table that all benchmarks have in common."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.measuring import report
from benchmarks.measuring.measure import Result, Usage, as_figures, compared


def result(name: str, *walls: float) -> Result:
    cpu = {"java": 2.0, "driver": 0.25, "python": 1.25, "metastore": 0.5}
    peak = {"java": 900 * 2**20, "driver": 80 * 2**20, "python": 70 * 2**20, "metastore": 2**20}
    return Result(name, [Usage(wall, cpu, peak, 3 * 2**20, 5 * 2**20) for wall in walls])


def case(name: str = "P = 30") -> dict[str, object]:
    ours, theirs = result("ours", 1, 2, 3), result("spark", 4, 4, 4)
    return {
        "case": name,
        "text": "10 rows; right.",
        "contestants": {
            "ours": as_figures(ours),
            "spark": as_figures(theirs),
            "late": as_figures(Result("late", [], "ValueError: no\nstack")),
        },
        "ratios": {"ours / spark": compared(ours, theirs)},
        "aims": {"ours / spark": {"wall": 0.45}},
    }


def test_a_case_is_a_table() -> None:
    """CPU by JVM and Python apart, peaks, shuffled and written bytes, ratios with their aim."""
    head, text, header, _, ours, spark, late = [
        line for line in report.case_text(case()).splitlines() if line
    ]
    assert (head, text) == ("## P = 30", "10 rows; right.")
    assert header.startswith("| contestant | wall s | CPU s | JVM | Python | others | peak MiB JVM | driver")
    assert ours == (
        "| ours | 2.00 | 4.00 | 2.00 | 1.50 | 0.50 | 900 | 80 | 70 | 1 | 5.0 | 3.0 "
        "| 0.500 × spark (0.250 to 0.750), aim 0.45 | 1.000 × spark (1.000 to 1.000) |"
    )
    assert spark.endswith("| 5.0 | 3.0 |  |  |")
    assert late.startswith("| late | failed: ValueError: no |")
    assert late.count("|") == ours.count("|")


def test_a_case_without_contestants_is_its_text() -> None:
    """What was held, not compared."""
    alone = {"case": "a stream", "text": "held.", "contestants": {}, "ratios": {}}
    assert report.case_text(alone) == "## a stream\n\nheld.\n"


def test_shown_cases_are_remembered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And come into one table, each line with its benchmark and case."""
    monkeypatch.setattr(report, "_shown", [])
    report.show_case(case())
    (shown,) = report.shown_cases()
    lines = report.overview([("write", shown)]).splitlines()
    assert "## P = 30" in capsys.readouterr().out
    assert lines[0].startswith("| benchmark | case | contestant |")
    assert [line.split(" | ")[:3] for line in lines[2:]] == [
        ["| write", "P = 30", name] for name in ("ours", "spark", "late")
    ]


def test_kept_beside_earlier_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case measured again replaces its old self; versions and machine stand below each."""
    drawn: list[int] = []
    monkeypatch.setattr(
        report,
        "importlib",
        SimpleNamespace(
            import_module=lambda name: SimpleNamespace(draw=lambda cases, path: drawn.append(len(cases)))
        ),
    )
    path = tmp_path / "write.json"
    for names, versions in ((("a", "b"), "old"), (("b",), "new")):
        report.save_cases(
            [case(name) for name in names], path, title="Write", versions=versions, machine="box"
        )
    assert [(c["case"], c["versions"]) for c in json.loads(path.read_text())["cases"]] == [
        ("a", "old"),
        ("b", "new"),
    ]
    text = path.with_suffix(".md").read_text()
    assert text.startswith("# Write\n\n## a\n")
    assert "box; old\n" in text
    assert "box; new\n" in text
    assert drawn == [2, 2]
