"""Values of real databases that are not dates or finite numbers of Hive."""

from __future__ import annotations

import secrets
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from judges.postgres import Postgres
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordValueError
from tests.integration.update.conftest import KINDS
from tests.support.shops import PostgresSource, Shop, Source

pytestmark = pytest.mark.slow
EITHER = pytest.mark.usefixtures("either_engine")

CREATE = {
    "postgresql": "CREATE TABLE orders (id date PRIMARY KEY, d date, t timestamp, z timestamptz, n numeric)",
    "mysql": "CREATE TABLE orders (id date PRIMARY KEY, d date, t datetime(3), z timestamp NULL, n dec(9,2))",
}
FITTING = "('2024-05-01', '0001-01-01', '9999-12-31 23:59:59.5', '2024-05-01 10:00:00{}', 1.5)"
INVALID = {
    "postgresql": {
        "d": ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "4714-11-24 BC"),
        "t": (
            "infinity",
            "-infinity",
            "0044-03-15 10:00:00 BC",
            "10000-01-01 00:00:00",
            "294276-12-31 23:59:59",
        ),
        "z": ("infinity", "-infinity", "0044-03-15 10:00:00+00 BC", "10000-01-01 00:00:00+00"),
        "n": ("NaN", "Infinity", "-Infinity"),
    },
    "mysql": {
        "d": ("0000-00-00", "2024-00-00", "2024-05-00", "2024-02-31", "0000-05-01"),
        "t": ("0000-00-00 00:00:00", "2024-05-00 10:00:00.5", "2024-02-31 10:00:00"),
        "z": ("0000-00-00 00:00:00",),
    },
}
"""Kind of source -> column -> values."""
MODE = {"mysql": "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'", "postgresql": "SELECT 1"}
TYPES = {"id": "date", "d": "date", "t": "timestamp", "z": "timestamp", "n": "decimal(9,2)"}


def _shop(source: Source, place: Path, kinds: dict[str, str], name: str = "orders") -> Shop:
    columns = [ColumnInfo(column, kind) for column, kind in kinds.items()]
    return Shop(source, InMemoryMetastore(place, capabilities=HIVE_4_1), "default", columns, name=name)


def _zone(source: Source) -> str:
    return "+00" if source.kind == "postgresql" else ""


@pytest.mark.long
@EITHER
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_each_is_refused_with_its_key_until_it_may_be_null(source: Source, tmp_path: Path) -> None:
    """The refusal names where the value is, and the option; with the option only such values are NULL."""
    source.run(CREATE[source.kind], f"INSERT INTO orders VALUES {FITTING.format(_zone(source))}")
    shop = _shop(source, tmp_path / "w", TYPES)
    shop.enable()
    shop.extract()
    nulled: list[str] = []
    for column, values in INVALID[source.kind].items():
        for number, value in enumerate(values):
            key = f"2024-06-{number + 1:02}"
            source.run(MODE[source.kind], f"INSERT INTO orders (id, {column}) VALUES ('{key}', '{value}')")
            wanted = rf"orders, row id={key}: column '{column}'.*is not a.*--null-for {column}"
            if column not in nulled:
                with pytest.raises(RecordValueError, match=wanted):
                    shop.extract()
                nulled.append(column)
                shop.enable(null_for=nulled)
            shop.extract()
            assert [row[column] for row in shop.rows() if str(row["id"]) == key] == [None]
            source.run(f"DELETE FROM orders WHERE id = '{key}'")
    shop.extract()
    (row,) = shop.rows()
    assert [row["d"], row["t"], row["z"]] == [
        date.min,
        datetime(9999, 12, 31, 23, 59, 59, 500_000),
        datetime(2024, 5, 1, 10) if source.kind == "postgresql" else datetime(2024, 5, 1, 4, 30),
    ]


@EITHER
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_a_string_holds_what_the_server_writes(source: Source, tmp_path: Path) -> None:
    """In the key as well, by which the log finds changed and deleted rows."""
    invalid = INVALID[source.kind]
    source.run(MODE[source.kind], CREATE[source.kind])
    keys = invalid["d"]
    source.run(MODE[source.kind], f"INSERT INTO orders (id) VALUES ('{keys[0]}')")
    dates = _shop(source, tmp_path / "dates", TYPES)
    dates.enable()
    with pytest.raises(RecordValueError, match=r"row id=.*: column 'id' \(date\).*in which id is a string$"):
        dates.extract()
    dates.disable(discard=True)
    shop = _shop(source, tmp_path / "texts", dict.fromkeys(TYPES, "string") | {"n": _number(source)})
    shop.enable()
    shop.extract()
    for key in keys[1:]:
        source.run(MODE[source.kind], f"INSERT INTO orders (id, d) VALUES ('{key}', '{key}')")
    for column, values in invalid.items():
        for number, value in enumerate(values):
            source.run(
                MODE[source.kind],
                f"INSERT INTO orders (id, {column}) VALUES ('2024-06-{number + 1:02}', '{value}')",
            )
            shop.extract()
            assert _texts(shop) == _wanted(source)
            source.run(f"DELETE FROM orders WHERE id = '2024-06-{number + 1:02}'")
    source.run(MODE[source.kind], f"UPDATE orders SET d = id WHERE id = '{keys[0]}'")
    source.run(MODE[source.kind], f"DELETE FROM orders WHERE id = '{keys[1]}'")
    shop.extract()
    assert _texts(shop) == _wanted(source)
    shop.disable()


def _number(source: Source) -> str:
    return "string" if source.kind == "postgresql" else "decimal(9,2)"


def _texts(shop: Shop) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in shop.rows()), key=str)


def _wanted(source: Source) -> list[tuple[Any, ...]]:
    shown = "CAST({0} AS CHAR) AS {0}"
    names = [shown.format(name) for name in ("id", "d", "t")]
    names += ["CAST(z AS CHAR) AS z", "n"]
    if source.kind == "postgresql":
        names = [f"{name}::text" for name in ("id", "d", "t", "(z AT TIME ZONE 'UTC')", "n")]
    return sorted(source.rows(f"SELECT {', '.join(names)} FROM orders"), key=str)


@pytest.mark.long
def test_a_database_without_an_encoding(postgres: Postgres, tmp_path: Path) -> None:
    """Its texts are read if they are UTF-8."""
    name = f"plain_{secrets.token_hex(3)}"
    postgres.sql(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        source = PostgresSource(postgres, name)
        text = "convert_from('\\x{}', 'SQL_ASCII')"
        source.run(
            "CREATE TABLE orders (id int PRIMARY KEY, item text)",
            f"INSERT INTO orders VALUES (1, {text.format('61ff')}), (2, {text.format('c3a4')})",
        )
        shop = _shop(source, tmp_path / "w", {"id": "int", "item": "string"})
        shop.enable()
        with pytest.raises(
            RecordValueError, match='not valid UTF-8: invalid byte sequence for encoding "UTF8": 0xff'
        ):
            shop.extract()
        source.run("DELETE FROM orders WHERE id = 1")
        shop.extract()
        assert shop.rows() == [{"id": 2, "item": "ä"}]
    finally:
        postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
