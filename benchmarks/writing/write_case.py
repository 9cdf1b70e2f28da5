"""One case of a benchmark of writing: writers in turn, what they wrote checked, and the figures."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.data.event_data import Content, RowSource, Shape, as_content, checksums_query, content
from benchmarks.measuring.measure import alternate, as_figures, compared, machine, tell
from benchmarks.measuring.report import save_cases, show_case
from benchmarks.writing.write_input import Prepared, prepare_changes, prepare_inserts
from benchmarks.writing.write_stage import LAYOUTS, Layout, Stage
from benchmarks.writing.writers import SparkWriter, TableWriter
from judges.hive.judge import HiveJudge
from mutation_api import WriterOptions

RESULTS = Path(__file__).parents[1] / "results"
JUDGED = Shape(20_000, 4)
"""What Hive reads back: few rows, since its SQL starts a task for each bucket."""

Writer = TableWriter | SparkWriter
Pair = tuple[str, str]
Aim = Mapping[str, float]


def run_case(
    stage: Stage,
    label: str,
    text: str,
    writers: Sequence[Writer],
    *,
    pairs: Mapping[Pair, Aim],
    rounds: int,
    warm_up: int,
) -> dict[str, Any]:
    """Let writers take turns; show the case and return it for JSON.

    Args:
        stage: where they write.
        label: the case's name.
        text: what they do.
        writers: in their order.
        pairs: which are compared, ours and theirs by name, and the ratios that should not be exceeded.
        rounds: measured ones.
        warm_up: unmeasured rounds before.

    Returns:
        A case of :mod:`~.report`; ``is_right`` is false if a writer failed, or left anything out.
    """
    tell(label)
    stage.is_warm = True
    results = alternate(
        [writer.contestant for writer in writers], rounds, stage.watch(), warm_up=warm_up, tell=tell
    )
    by_name = {result.name: result for result in results if result.usages}
    incomplete = [
        writer.contestant.name
        for writer, result in zip(writers, results, strict=True)
        if result.failure or not writer.is_complete()
    ]
    for writer in writers:
        writer.close()
    settings = "".join(f"; {name}={value}" for name, value in stage.settings.items())
    judgement = f"INCOMPLETE: {', '.join(incomplete)}" if incomplete else "all wrote everything"
    known = {pair: aim for pair, aim in pairs.items() if by_name.keys() >= set(pair)}
    case = {
        "case": label,
        "text": f"{text}; rounds: {rounds} measured after {warm_up} others; {judgement}{settings}.",
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {_pair_text(pair): compared(*map(by_name.__getitem__, pair)) for pair in known},
        "aims": {_pair_text(pair): dict(aim) for pair, aim in known.items() if aim},
        "is_right": not incomplete,
    }
    show_case(case)
    return case


def agreed(
    stage: Stage,
    layouts: Sequence[Layout],
    source: RowSource = JUDGED,
    *,
    inserts_only: bool = False,
    options: WriterOptions | None = None,
) -> bool:
    """Write few rows in each layout, and have Hive read them; whether it always finds the right content.

    Args:
        stage: where.
        layouts: of the tables.
        source: of the rows.
        inserts_only: insert rows, instead of a mixed change set.
        options: of the files; None for the defaults.
    """
    prepare: Callable[[Stage, str, RowSource, str], Prepared] = (
        prepare_inserts if inserts_only else prepare_changes
    )
    name = "judged"
    prepared = {line: prepare(stage, name, source, line) for line in sorted({each.line for each in layouts})}
    base = source.base(stage.spark)
    expected = content(base, source.checksums) if inserts_only else source.expected(stage.spark)
    writers = [TableWriter(stage, layout.name, prepared[layout.line], layout, options) for layout in layouts]
    for writer in writers:
        with contextlib.closing(writer):
            writer.contestant.prepare(0)
            writer.contestant.run(0)
    verdicts = []
    for line in prepared:
        tables = [
            writer.table for writer, layout in zip(writers, layouts, strict=True) if layout.line == line
        ]
        with stage.servers[line].judge() as judge:
            stage.versions.add(judge.description)
            contents = [hive_content(judge, table, source.checksums) for table in tables]
            verdicts.append(all(each == expected for each in contents))
        tell(f"Hive {line} {'agrees' if verdicts[-1] else 'DISAGREES'} on {', '.join(tables)}")
    return all(verdicts)


def save(stage: Stage, name: str, title: str, cases: Sequence[Mapping[str, Any]]) -> None:
    """Keep the cases of a benchmark in its files."""
    path = RESULTS / f"{name}.json"
    save_cases(cases, path, title=title, versions=", ".join(sorted(stage.versions)), machine=machine())


def layouts_of(text: str) -> tuple[Layout, ...]:
    """Layouts by their names between commas. Raises KeyError."""
    return tuple(LAYOUTS[name.strip()] for name in text.split(","))


def hive_content(judge: HiveJudge, table: str, checksums: str) -> Content:
    """What Hive's SQL finds in a table, by partition."""
    settings = {"hive.vectorized.execution.enabled": "false"}
    return as_content(judge.sql(checksums_query(f"default.{table}", checksums), settings=settings))


def _pair_text(pair: Pair) -> str:
    return " / ".join(pair)
