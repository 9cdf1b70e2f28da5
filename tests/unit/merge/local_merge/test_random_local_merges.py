"""Random merges by the local engine beside the model, in memory: rows, counts and refusals.

Hive judges such cases in ``tests/integration/merges/test_merge_random.py``; here many run in a blink.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api import DuplicateKeyError, MergeReport, RecordValueError, TableScan, open_table
from mutation_api.merge.local_merge import LocalMerge
from tests.integration.merges.local_engine import begun_locally
from tests.integration.merges.merge_cases import random_merge, random_rows, random_shape, random_source
from tests.integration.merges.merge_model import Outcome, Row, outcome
from tests.integration.merges.merge_tables import Place, Table, in_order

CASES, CASES_IN_THE_LONG_RUN = 15, 40
RELEASES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
LAYOUTS = [
    ("2.3", "legacy"),
    ("2.3", "default"),
    ("3.1", "default"),
    ("4.1", "default"),
    ("4.1", "insert_only"),
]


@pytest.mark.slow
@pytest.mark.parametrize("cases", [CASES, pytest.param(CASES_IN_THE_LONG_RUN, marks=pytest.mark.long)])
@pytest.mark.parametrize(("line", "layout"), LAYOUTS)
def test_random_merges_in_memory(tmp_path: Path, line: str, layout: str, cases: int) -> None:
    """Rows, counts of merge and dry run, and refusals are those of the model."""
    metastore = InMemoryMetastore(tmp_path, capabilities=RELEASES[line])
    place = Place(cast(Any, SimpleNamespace(line=line, uri=metastore)), metastore, "default")
    merged = 0
    for seed in range(cases):
        rng = random.Random(f"{line} {layout} {seed}")
        shape = random_shape(rng, line, layout)
        if shape.is_original:
            continue  # its plain files are made by Hive
        table = place.of(shape)
        for _ in range(rng.randrange(3)):
            table.insert(random_rows(rng, shape, rng.randrange(5, 12)))
            if layout != "insert_only":
                table.change(rng)
        before = sorted(rows_of(table), key=repr)
        merge = random_merge(rng, shape)
        given = random_source(rng, shape, merge, before)
        if merge.on_too is not None:
            continue  # a condition besides keys is for Spark
        expected = outcome(shape.target, before, given.rows, merge)
        try:
            with table.client() as client, client.new_transaction() as transaction:
                if expected.refused_by:
                    for ask in (LocalMerge.dry_run, LocalMerge.execute):
                        with pytest.raises(
                            RecordValueError if expected.refused_by == "key" else DuplicateKeyError
                        ):
                            ask(begun_locally(transaction, table, merge, given))
                else:
                    dry = begun_locally(transaction, table, merge, given).dry_run()
                    done = begun_locally(transaction, table, merge, given).execute()
                    check(done, expected)
                    check(dry, expected)
                    assert (dry.file_count, dry.new_partitions) == (done.file_count, done.new_partitions)
            after = in_order(before if expected.refused_by else expected.rows)
            assert in_order(rows_of(table)) == after
        except BaseException as error:
            error.add_note(f"seed {seed}: {shape}\n{merge}\nrows {before}\nsource {given}")
            raise
        merged += 1
    assert merged > cases / 3


def check(report: MergeReport, expected: Outcome) -> None:
    """Counts, in all and by partition."""
    assert report.total == expected.total
    assert list(report.partitions.values()) == [
        counts for name, counts in sorted(expected.counts().items()) if name
    ] or sorted(map(repr, report.partitions.values())) == sorted(
        repr(counts) for name, counts in expected.counts().items() if name
    )


def rows_of(table: Table) -> list[Row]:
    """The rows, as our reader sees them."""
    with table.client() as client, client.open_snapshot(table.full_name) as view:
        found = TableScan(open_table(view, table.full_name)).to_arrow()
    rows = found.to_pylist(maps_as_pydicts="strict")
    return [{name: row[name] for name in table.types} for row in rows]
