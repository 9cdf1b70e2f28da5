"""Rows and change sets of the benchmarks of writing: random keys, short texts, dates as partitions.

All of it follows from the numbers of rows and partitions, so every contestant and every run has the same. The
table has as many rows as the change set has changes; half of these rows are updated, a tenth deleted, and
four tenths as many come new, which makes the mix of a change set 50, 10 and 40 %, to within a few hundredths
of a percent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api import ROW_ID_COLUMN

PARTITION_KEYS = "ds string"
KEY = "id"
"""A bigint, >= 0; tables are bucketed by it."""
BUCKETS = 8

Content = Mapping[str, tuple[int, ...]]
"""Values of a source's checksums by partition."""

UPDATED_TENTHS, DELETED_TENTHS, INSERTED_TENTHS = 5, 1, 4
OLD, NEW = 0, 1
"""Versions of a row: as it was loaded or inserted, and as it was updated."""

FIRST_DAY = "2023-01-01"
STATUSES = (
    "ordered paid packed shipped arrived returned refunded cancelled delayed lost found billed reminded "
    "called opened closed"
)
CITIES = (
    "Aalborg Antwerp Basel Bergen Bilbao Bordeaux Bremen Brno Cardiff Cork Dijon Dortmund Dublin Eindhoven "
    "Florence Gdansk Geneva Ghent Gothenburg Granada Graz Grenoble Hamburg Helsinki Innsbruck Krakow Leeds "
    "Leipzig Linz Lisbon Lyon Malmo Marseille Munich Nantes Naples Odense Oporto Ostrava Palermo Poznan "
    "Riga Rotterdam Seville Tallinn Turin Utrecht Vilnius"
)
PRICES = 4_000_000
NUMERALS = 900_000
SMALLEST_NUMERAL = 100_000

CHANGE_FILES = 16
"""Number of files of a change set, in random order: its input does not show where a change goes."""

_KEY_BITS = 36
_FACTORS = (0x9_E377_9B97, 0x35_6B0A5)
"""Odd, so that a product modulo 2 ** 36 keeps numbers apart; products stay below 2 ** 63."""
_BUCKET_BITS = 3


class RowSource(Protocol):
    """Where the rows of a benchmark come from; real data may stand in for :class:`Shape`."""

    @property
    def columns(self) -> str:
        """As Hive declares the table: ``id bigint`` and any others but ``ds``."""
        ...

    @property
    def checksums(self) -> str:
        """Sums over every data column; the same text for Hive and for Spark."""
        ...

    def base(self, spark: SparkSession) -> DataFrame:
        """The table's rows, with ``ds``."""
        ...

    def inserts(self, spark: SparkSession) -> DataFrame:
        """Rows that come new with the change set."""
        ...

    def changes(self, table: DataFrame) -> DataFrame:
        """A change set for these rows; see :meth:`Shape.changes`."""
        ...

    def expected(self, spark: SparkSession) -> Content:
        """What the table holds after the change set, computed without it."""
        ...


@dataclass(frozen=True)
class Shape:
    """Rows (id, msg, v) made up by a formula: how many there are, and where they go.

    Attributes:
        rows: changes of the change set, about; and exactly the rows of the table before. Below 2 ** 26.
        partitions: over which rows are spread.
        hot_percent: share of the rows that go to bucket 0 of the first partition.
        columns: as Hive declares the table; there are no others.
        checksums: over them.
    """

    rows: int
    partitions: int
    hot_percent: int = 0
    columns: str = "id bigint, msg string, v double"
    checksums: str = "count(*), sum(pmod(id, 1000003)), sum(crc32(msg)), sum(cast(v * 4 AS bigint))"

    def base(self, spark: SparkSession) -> DataFrame:
        """The table's rows: id, msg, v, ds."""
        return self._rows(spark, 0, self.rows)

    def inserts(self, spark: SparkSession) -> DataFrame:
        """Rows that come new."""
        return self._rows(spark, self.rows, self.rows + self.rows * INSERTED_TENTHS // 10)

    def changes(self, table: DataFrame) -> DataFrame:
        """The change set, in random order.

        Args:
            table: ROW__ID, id and ds of the table's rows, as ``read_table`` reads them.

        Returns:
            operation, ROW__ID, id, msg, v, ds, and ``bucket_id`` by Hive's first hash, for contestants that
            cannot compute it. The data columns of deletes are null.
        """
        updates = table.where(is_updated()).select(ROW_ID_COLUMN, *_values(sf.col("id"), NEW), "ds")
        deletes = table.where(is_deleted()).select(ROW_ID_COLUMN, "id", "ds")
        return change_set(self.inserts(table.sparkSession), updates, deletes)

    def expected(self, spark: SparkSession) -> Content:
        """What the table holds after the change set, computed from the formulas alone."""
        return expected_content(self, spark, lambda rows: rows.select(*_values(sf.col("id"), NEW), "ds"))

    def _rows(self, spark: SparkSession, first: int, end: int) -> DataFrame:
        number = sf.col("number")
        is_hot = sf.pmod(sf.xxhash64(number), sf.lit(100)) < self.hot_percent
        numbered = spark.range(first, end).withColumnRenamed("id", "number")
        keyed = numbered.select(random_key(number, is_hot).alias("id"), is_hot.alias("is_hot"))
        day = sf.when(sf.col("is_hot"), 0).otherwise(
            sf.pmod(sf.xxhash64("id", sf.lit("ds")), sf.lit(self.partitions))
        )
        ds = sf.date_add(sf.lit(FIRST_DAY).cast("date"), day.cast("int")).cast("string")
        return keyed.select(*_values(sf.col("id"), OLD), ds.alias("ds"))


def change_set(inserts: DataFrame, updates: DataFrame, deletes: DataFrame) -> DataFrame:
    """A change set, in random order; see :meth:`Shape.changes`.

    Args:
        inserts: new rows.
        updates: ROW__IDs and rows.
        deletes: ROW__ID, id and ds.
    """

    def part(operation: str, rows: DataFrame) -> DataFrame:
        return rows.withColumns({"operation": sf.lit(operation), "bucket_id": bucket_of(sf.col(KEY))})

    both = part("update", updates).unionByName(part("insert", inserts), allowMissingColumns=True)
    return shuffled(both.unionByName(part("delete", deletes).drop(KEY), allowMissingColumns=True))


def expected_content(
    source: RowSource, spark: SparkSession, corrected: Callable[[DataFrame], DataFrame]
) -> Content:
    """What a source's table holds after its change set; ``corrected`` makes of its rows their updates."""
    base = source.base(spark)
    kept = base.where(~is_updated() & ~is_deleted())
    changed = kept.unionByName(corrected(base.where(is_updated())))
    return content(changed.unionByName(source.inserts(spark)), source.checksums)


def is_updated() -> Column:
    """Whether the change set updates the row of this id."""
    return _tenth() < UPDATED_TENTHS


def is_deleted() -> Column:
    """Whether the change set deletes the row of this id."""
    return (_tenth() >= UPDATED_TENTHS) & (_tenth() < UPDATED_TENTHS + DELETED_TENTHS)


def shuffled(rows: DataFrame) -> DataFrame:
    """The same rows in random order, the same in each run."""
    order = sf.xxhash64("id", "ds", sf.col(ROW_ID_COLUMN) if ROW_ID_COLUMN in rows.columns else sf.lit(0))
    return rows.repartition(CHANGE_FILES, order).sortWithinPartitions(order)


def content(table: DataFrame, checksums: str) -> Content:
    """What a table holds, by partition."""
    table.createOrReplaceTempView("found")
    return as_content(table.sparkSession.sql(checksums_query("found", checksums)).collect())


def checksums_query(table: str, checksums: str) -> str:
    """The query whose answer :func:`as_content` takes."""
    return f"SELECT ds, {checksums} FROM {table} GROUP BY ds"


def as_content(rows: Iterable[Sequence[object]]) -> Content:
    """The answer to :func:`checksums_query`; None, for a sum over nothing, counts as 0."""
    return {str(row[0]): tuple(int(str(value or 0)) for value in row[1:]) for row in rows}


def bucket_of(key: Column) -> Column:
    """Hive's bucket by its first hash, of keys >= 0: the two halves of the number, combined."""
    halves = key.bitwiseXOR(sf.shiftright(key, 32))
    return (halves.bitwiseAND(sf.lit(0x7FFF_FFFF)) % BUCKETS).cast("int")


def _tenth() -> Column:
    """The random tenth to which a row belongs."""
    return sf.pmod(sf.xxhash64(KEY, sf.lit("operation")), sf.lit(10))


def random_key(number: Column, is_hot: Column | None = None) -> Column:
    """A random key for each number, for no two the same; below 2 ** 39; of hot rows one of bucket 0."""
    mask = sf.lit((1 << _KEY_BITS) - 1)
    key = number
    for factor in _FACTORS:
        key = (key * factor).bitwiseAND(mask)
        key = key.bitwiseXOR(sf.shiftright(key, _KEY_BITS // 2))
    key = sf.shiftleft(key, _BUCKET_BITS)
    low = sf.xxhash64(number)
    if is_hot is not None:
        low = sf.when(is_hot, sf.shiftright(key, 32)).otherwise(low)
    return key.bitwiseOR(low.bitwiseAND(sf.lit(BUCKETS - 1)))


def _values(key: Column, version: int) -> tuple[Column, ...]:
    """id, msg and v of a version of a row."""
    bits = sf.xxhash64(key, sf.lit(version))

    def part(shift: int, choices: int) -> Column:
        return sf.pmod(sf.shiftright(bits, shift), sf.lit(choices))

    def word(shift: int, text: str) -> Column:
        words = text.split()
        return sf.element_at(sf.array(*map(sf.lit, words)), (part(shift, len(words)) + 1).cast("int"))

    numeral = (part(12, NUMERALS) + SMALLEST_NUMERAL).cast("string")
    texts = word(0, STATUSES), word(4, CITIES), numeral
    return key.alias("id"), sf.concat_ws(" ", *texts).alias("msg"), (part(33, PRICES) / 4).alias("v")
