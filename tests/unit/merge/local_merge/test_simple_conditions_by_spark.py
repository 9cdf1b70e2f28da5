"""Conditions that the local engine reads: Spark finds the same rows, with ANSI rules and without."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from mutation_api.errors import RecordLayoutError, UnsupportedLocallyError
from mutation_api.merge.clauses import SOURCE, TARGET
from mutation_api.merge.spark_expressions import ExpressionAnalyser, with_sides
from mutation_api.merge.sql_conditions import resolved_condition
from mutation_api.spark.versions import frame_of_arrow, unlogged_errors
from mutation_api.table.evaluation import evaluate

pytestmark = pytest.mark.slow

ROWS = 60
CONDITIONS = 120

TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "decimal(6,2)": pa.decimal128(6, 2),
    "decimal(38,18)": pa.decimal128(38, 18),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "string": pa.string(),
    "double": pa.float64(),
}
NAMES = {
    # names that are words of SQL, too
    "tinyint": "n",
    "smallint": "order",
    "int": "user",
    "bigint": "values",
    "decimal(6,2)": "table",
    "decimal(38,18)": "current_date",
    "boolean": "select",
    "date": "date",
    "string": "left",
    "double": "ratio",
}
TEXTS = ["", "D", "d", "Z", "é", "\U0001f600", "￿", " D", "a b", "--", "/*", "%", "null", "AND"]
NUMBERS = [0, 1, -1, 5, 100, 127, -128, 300, 32767, 2**31 - 1, -(2**31), 10**12]
FRACTIONS = ["0.0", "1.5", "-1.50", "0.01", "9999.99", "100.00", "12.3", "-0.5"]
DOUBLES = [0.0, -0.0, 1.5, -1.5, 0.1, 1e300, -1e-300, float("nan"), float("inf"), float("-inf"), 2.0**53]
DAYS = ["0001-01-01", "1582-10-10", "1970-01-01", "2024-02-29", "9999-12-31"]


def value(dice: random.Random, kind: str) -> Any:
    """A value of a column."""
    if dice.random() < 0.15:
        return None
    match kind:
        case "boolean":
            return dice.random() < 0.5
        case "date":
            return datetime.date.fromisoformat(dice.choice(DAYS))
        case "string":
            return dice.choice(TEXTS)
        case "double":
            return dice.choice(DOUBLES)
        case "decimal(6,2)" | "decimal(38,18)":
            return Decimal(dice.choice(FRACTIONS))
        case _:
            bits = TYPES[kind].bit_width
            return dice.choice([n for n in NUMBERS if -(2 ** (bits - 1)) <= n < 2 ** (bits - 1)])


def comparison(dice: random.Random) -> str:
    """A comparison of the grammar, mostly with a literal that suits the column."""
    kind = dice.choice([*TYPES])
    side, name = dice.choice(["", "source.", "target.", "SOURCE."]), NAMES[kind]
    if dice.random() < 0.15:
        return f"{side}{name} IS {dice.choice(['', 'NOT '])}NULL"
    kind = kind if dice.random() < 0.9 else dice.choice([*TYPES])
    operator = dice.choice(
        ["=", "<>", "!="] if kind == "boolean" else ["=", "<>", "!=", "<", "<=", ">", ">="]
    )
    match kind:
        case "boolean":
            literal = dice.choice(["TRUE", "false"])
        case "date":
            literal = f"'{dice.choice(DAYS)}'"
        case "string":
            literal = f"'{dice.choice(TEXTS)}'"
        case "double":
            literal = dice.choice(
                [*FRACTIONS, *map(str, NUMBERS), "0.1D", "1.5D", "1e300", "-1.5D", "1e-300"]
            )
        case "decimal(6,2)" | "decimal(38,18)":
            literal = dice.choice([*FRACTIONS, *map(str, NUMBERS)])
        case _:
            literal = str(dice.choice(NUMBERS))
    blank = dice.choice(["", " ", "  "])
    return f"{side}{name}{blank}{operator}{blank}{literal}"


@pytest.fixture(params=["true", "false"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Both kinds of rules."""
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.usefixtures("ansi")
def test_spark_finds_the_same(spark: SparkSession) -> None:
    """The three truth values of each condition for each row. Most conditions are read here."""
    dice = random.Random(7)
    columns = {NAMES[kind]: arrow for kind, arrow in TYPES.items()}
    sides = {
        side: pa.array(
            [{NAMES[kind]: value(dice, kind) for kind in TYPES} for _ in range(ROWS)],
            pa.struct(list(columns.items())),
        )
        for side in (SOURCE, TARGET)
    }
    rows = pa.table(sides)
    read: dict[str, list[bool | None]] = {}
    while len(read) < CONDITIONS:
        text = " AND ".join(comparison(dice) for _ in range(dice.choice([1, 1, 2, 3])))
        try:
            expression, _ = resolved_condition(text, columns, columns)
        except UnsupportedLocallyError:
            continue
        read[text] = evaluate(expression, rows).to_pylist()
    texts = [with_sides(spark, text, dict.fromkeys(columns, SOURCE)) for text in read]
    found = spark.createDataFrame(rows).selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts)))
    by_spark = found.toArrow()
    for number, (text, expected) in enumerate(read.items()):
        assert by_spark.column(f"c{number}").to_pylist() == expected, text


FORMS = [
    "source.n = target.n OR source.user > target.user",
    "source.n = target.user AND source.order <= target.values",
    "NOT (n = 1 AND select) OR target.select",
    "NOT n = 1 AND NOT target.n IS NULL",
    "! select",
    "source.select = target.select",
    "select <> (n > 5)",
    "(n > 5) = (target.n > 5)",
    "source.left < target.left",
    "source.left <=> target.left",
    "source.`table` <=> target.`table` AND NOT source.n <=> NULL",
    "left <=> NULL OR left = NULL",
    "n IS NOT DISTINCT FROM target.n",
    "n IN (1, 5, 100)",
    "n NOT IN (1, 5, target.n)",
    "n IN (1, NULL)",
    "user IN (1.0, 5.5, 100)",
    "table IN (1.5, 100, -0.50)",
    "left IN ('D', 'é', target.left)",
    "date IN ('2024-02-29', '0001-01-01')",
    "date NOT IN (DATE '2024-02-29', target.date)",
    "select IN (true, NULL)",
    "n BETWEEN target.n AND 100",
    "table NOT BETWEEN 0 AND target.table",
    "left BETWEEN 'D' AND 'a'",
    "date BETWEEN '1582-10-10' AND target.date",
    "left LIKE '%'",
    "left LIKE '_'",
    "left LIKE '%D' OR left LIKE 'a%b'",
    "left NOT LIKE '%!%%' ESCAPE '!'",
    "left LIKE 'x%%' ESCAPE 'x'",
    "left LIKE '/*' OR left LIKE '--'",
    "table = 1.5 OR table = 100 OR table > 9999.990",
    "table < target.current_date",
    "user > target.table AND values <> target.table",
    "n = 5.0 OR n < .5",
    "values = -2147483648 OR user = -2147483648",
    "n + 1 > target.n * 2",
    "n - cast(order AS int) < 0",
    "cast(user AS bigint) + values > target.values",
    "cast(user AS bigint) * 3 - 5L >= target.user",
    "- cast(order AS int) = 100",
    "table + target.table > 1.5",
    "table * 2 - n <= target.table",
    "table * target.table = 2.25",
    "user % 7 = 2 OR values % 1000 = -1",
    "abs(cast(n AS int)) = 128 OR abs(table) = 1.5",
    "CASE WHEN n > 5 THEN 'big' WHEN n < 0 THEN 'minus' ELSE left END = 'big'",
    "CASE WHEN select THEN n ELSE user END > 0",
    "CASE WHEN select THEN table END IS NULL",
    "if(n > target.n, source.date, target.date) = '2024-02-29'",
    "coalesce(n, target.n, 0) = 0",
    "coalesce(table, user) > 1",
    "nvl(left, 'none') = 'none'",
    "ifnull(date, DATE '2024-02-29') = target.date",
    "cast(n AS string) = '-128' OR cast(select AS string) = 'true'",
    "cast(date AS string) = '0001-01-01'",
    "cast(date AS string) < '1970' OR cast(values AS string) > '3'",
    "cast(n AS decimal(5,2)) = target.table",
    "cast(table AS decimal(10,4)) <> 1.5000",
    "cast(NULL AS int) = n OR NULL IS NULL",
    "length(left) = 1 OR length(target.left) > 3",
    "trim(left) = 'D'",
    "year(date) = 2024 AND month(date) = 2 AND day(date) = 29",
    "year(date) < 1600",
    "select IS TRUE OR target.select IS NOT FALSE",
    "(n > 5) IS NOT TRUE",
    "source.at > target.at",
    "at = TIMESTAMP_NTZ '2024-02-29 12:00:00.000001' OR target.at IS NULL",
    "at BETWEEN TIMESTAMP_NTZ '1900-01-01 00:00:00' AND target.at",
    "ratio = target.ratio OR ratio > target.ratio",
    "ratio <= target.ratio",
    "ratio >= target.ratio AND ratio <> 1.5",
    "ratio < target.user AND ratio <> target.values",
    "ratio <=> target.ratio",
    "ratio BETWEEN 0 AND target.ratio",
    "ratio NOT BETWEEN -1.5D AND 1e300",
    "ratio * 1.1 > target.ratio + 0.1D",
    "ratio - target.ratio = 0",
    "- ratio < abs(target.ratio)",
    "n / 2 > 1 OR values / 3 = target.ratio",
    "cast(n AS double) = 5 OR cast(values AS double) > ratio",
    "n = 5D OR values < 1e10",
    "CASE WHEN select THEN ratio ELSE target.ratio END > 1",
    "coalesce(ratio, target.ratio) = 0",
    "n IN (1, 5D)",
    "true",
]
"""Conditions whose columns are those of ``NAMES`` and ``at``, a timestamp."""
MOMENTS = ["1582-10-04 01:00:00", "1970-01-01 00:00:00", "2024-02-29 12:00:00.000001", "2024-03-31 02:30:00"]


@pytest.mark.long
@pytest.mark.usefixtures("ansi")
def test_spark_finds_the_same_for_each_form(spark: SparkSession) -> None:
    """Every part of the grammar, over both sides, with NULLs."""
    dice = random.Random(11)
    columns = {**{NAMES[kind]: arrow for kind, arrow in TYPES.items()}, "at": pa.timestamp("us")}

    def row() -> dict[str, Any]:
        moment = datetime.datetime.fromisoformat(dice.choice(MOMENTS)) if dice.random() < 0.85 else None
        return {**{NAMES[kind]: value(dice, kind) for kind in TYPES}, "at": moment}

    kind = pa.struct(list(columns.items()))
    rows = pa.table({side: pa.array([row() for _ in range(3 * ROWS)], kind) for side in (SOURCE, TARGET)})
    fields = ", ".join(f"`{NAMES[each]}`: {each}" for each in TYPES)
    schema = StructType.fromDDL(
        f"source struct<{fields}, at: timestamp_ntz>, target struct<{fields}, at: timestamp_ntz>"
    )
    read = {text: evaluate(resolved_condition(text, columns, columns)[0], rows).to_pylist() for text in FORMS}
    texts = [with_sides(spark, text, dict.fromkeys(columns, SOURCE)) for text in read]
    frame = frame_of_arrow(spark, rows, schema)
    by_spark = frame.selectExpr(*(f"({text}) AS c{n}" for n, text in enumerate(texts))).toArrow()
    for number, (text, expected) in enumerate(read.items()):
        assert by_spark.column(f"c{number}").to_pylist() == expected, text


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("nope = 'x'", (SOURCE, TARGET)),
        ("old = 1", (SOURCE,)),
        ("op IS NULL", (TARGET,)),
        ("target.op = 'D'", (SOURCE, TARGET)),
        ("source.current_date = 'x'", (SOURCE, TARGET)),
    ],
)
def test_spark_does_not_know_the_column_either(
    spark: SparkSession, text: str, sides: tuple[str, ...]
) -> None:
    """The same error with the same columns, whichever engine looks."""
    source, target = {"id": pa.int32(), "op": pa.string()}, {"id": pa.int32(), "old": pa.int32()}
    ddl = StructType.fromDDL("id int, op string"), StructType.fromDDL("id int, old int")
    with pytest.raises(RecordLayoutError) as here:
        resolved_condition(text, source, target, sides, "table d.t: the condition")
    names = {side: each.names for side, each in ((SOURCE, ddl[0]), (TARGET, ddl[1])) if side in sides}
    written = with_sides(spark, text, {name: side for side in reversed(sides) for name in names[side]})
    with pytest.raises(RecordLayoutError) as there:
        ExpressionAnalyser(spark, "d.t", *ddl).condition(written, sides, "the condition")
    ours = str(here.value).rpartition(": column ")[0].replace(repr(text), repr(written))
    assert str(there.value).startswith(f"{ours}: [UNRESOLVED_COLUMN")


@pytest.mark.long
def test_names_that_spark_knows_without_a_column(spark: SparkSession) -> None:
    """No function or word of SQL is refused here as an unknown column but known to Spark."""
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    names |= {row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    frame = spark.createDataFrame([], "zz int").alias(SOURCE)
    refused = []
    for name in sorted(filter(str.isidentifier, names)):
        try:
            resolved_condition(f"{name} IS NULL", {"zz": pa.int32()}, {})
        except RecordLayoutError:
            refused.append(name)
        except UnsupportedLocallyError:
            continue
    assert len(refused) > 500
    for name in refused:
        with unlogged_errors(), pytest.raises((AnalysisException, ParseException)):
            _ = frame.selectExpr(f"{name} IS NULL").schema
