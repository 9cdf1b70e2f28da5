"""Rows that break constraints, and rows for which Hive has no certain answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mutation_api.errors import ConstraintViolationError, RecordValueError
from mutation_api.table.acid_table import AcidColumn, CheckConstraint
from mutation_api.write.constraint_checks import ConstraintChecks
from tests.unit.write.tables import acid_table

COLUMNS = (
    AcidColumn("id", "int", not_null=True),
    AcidColumn("d", "double"),
    AcidColumn("s", "string"),
    AcidColumn("v", "int"),
)
ROW_TYPE = pa.struct([("id", pa.int32()), ("d", pa.float64()), ("s", pa.string()), ("v", pa.int32())])
CHECKS = ("not d > 5", "s like '_%'", "v + 1 < 100")
SOUND = {"id": 1, "d": 1.0, "s": "a", "v": 1}


def _check(tmp_path: Path, rows: list[dict[str, object]], is_new: list[bool]) -> None:
    checks = tuple(CheckConstraint(f"c{number}", text) for number, text in enumerate(CHECKS))
    table = dataclasses.replace(acid_table(tmp_path), columns=COLUMNS, checks=checks)
    ConstraintChecks(table).check(np.array(is_new), pa.array(rows, ROW_TYPE), "here")


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        (
            {"id": None},
            ConstraintViolationError,
            "1 rows violate NOT NULL of column id; the first is id=None",
        ),
        ({"d": 7.0}, ConstraintViolationError, r"violate CHECK c0 \(not d > 5\); the first is d=7.0, id=1"),
        ({"d": float("nan")}, RecordValueError, "CHECK c0 .* has no certain value for 1 rows.*d=nan"),
        ({"s": "\nb"}, RecordValueError, "CHECK c1 .* has no certain value for 1 rows.*line breaks"),
        ({"v": 2**31 - 1}, RecordValueError, "CHECK c2 .* cannot be evaluated: overflow"),
    ],
)
def test_a_wrong_row_is_refused_unless_it_is_deleted(
    tmp_path: Path, wrong: dict[str, object], error: type[Exception], why: str
) -> None:
    """Hive's answers for NaN, line breaks and overflows depend on its settings (seen on 3.1.3 and 4.1.0)."""
    rows = [SOUND | wrong, SOUND, SOUND | wrong]
    with pytest.raises(error, match=why):
        _check(tmp_path, rows, [False, True, True])
    _check(tmp_path, rows, [False, True, False])
    _check(tmp_path, [SOUND, dict.fromkeys(SOUND) | {"id": 2}], [True, True])


def test_nanoseconds_before_a_distant_year(tmp_path: Path) -> None:
    """The year 9999 is no number of nanoseconds, and all of these are before it."""
    columns = (AcidColumn("at", "timestamp"),)
    check = CheckConstraint("c", "at < '9999-12-31 00:00:00'")
    checks = ConstraintChecks(dataclasses.replace(acid_table(tmp_path), columns=columns, checks=(check,)))
    for unit in ("ns", "us"):
        rows = pa.StructArray.from_arrays([pa.array([1, None], pa.timestamp(unit))], names=["at"])
        checks.check(np.array([True, True]), rows, "here")


def test_a_message_shows_what_python_cannot_hold(tmp_path: Path) -> None:
    """As nanoseconds without pandas; a long value is cut."""
    columns = (
        AcidColumn("s", "struct<at:timestamp>"),
        AcidColumn("at", "timestamp"),
        AcidColumn("x", "string"),
    )
    check = CheckConstraint("c", "x is null")
    checks = ConstraintChecks(dataclasses.replace(acid_table(tmp_path), columns=columns, checks=(check,)))
    at = pa.array([2**60], pa.timestamp("us"))
    nested = pa.StructArray.from_arrays([at], names=["at"])
    rows = pa.StructArray.from_arrays([nested, at, pa.array(["x" * 1000])], names=["s", "at", "x"])
    with pytest.raises(
        ConstraintViolationError,
        match=r"x='x{199}….*1152921504606846976.*, at=1152921504606846976 \(timestamp\[us\]\)",
    ):
        checks.check(np.array([True]), rows, "here")
