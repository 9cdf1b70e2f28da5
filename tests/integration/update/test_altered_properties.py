"""Whoever may ALTER a table of Hive gets neither the source's password nor rows that nobody has asked for."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.source import SourceTable
from mutation_api.cdc.update.database import PASSWORD_VARIABLE
from mutation_api.cdc.update.progress_mark import ProgressMark
from mutation_api.cdc.update.settings import PREFIX, get_table, require_settings
from mutation_api.cdc.update.sources import SOURCE_VARIABLE, SourceAccess, capture_of
from mutation_api.cdc.update.status import update_status
from mutation_api.errors import ConfigurationError, SourcePositionError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.preconditions import check_mutable
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

ORDERS = "(id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(40), v INTEGER, at TIMESTAMP NULL)"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("at", "timestamp"))


class Listener:
    """A host of somebody else; it notes whether anybody came."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def was_connected(self) -> bool:
        """Whether somebody has connected since the last question."""
        try:
            self._socket.accept()[0].close()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A listener, closed after the test."""
    found = Listener()
    yield found
    found.close()


@pytest.fixture
def shop(source: Source, tmp_path: Path) -> Shop:
    """A shop that is enabled by a growing column, and extracted."""
    source.run(
        f"CREATE TABLE orders {ORDERS}",
        f"CREATE TABLE secret {ORDERS}",
        "INSERT INTO orders VALUES (1, 'tea', 1, '2024-05-01 10:00:00')",
        "INSERT INTO secret VALUES (77, 's3cret', 1, '2024-05-01 10:00:00')",
    )
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    shop = Shop(source, metastore, "default", COLUMNS)
    shop.enable(method="row-version", version_column="v", overlap="5", ignored_columns=["v"])
    return shop


def _alter(shop: Shop, **values: str) -> None:
    found = {PREFIX + name: value for name, value in values.items()}
    shop.metastore.set_table_parameters(*shop.table.split("."), found)


def _each_command(shop: Shop, **access: Any) -> list[str]:
    """What each command says that asks the source."""
    said = []
    for command in (shop.extract, shop.disable):
        with pytest.raises((ConfigurationError, SourcePositionError)) as caught:
            command(**access)
        said.append(str(caught.value))
    return said


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
@pytest.mark.parametrize("is_extracted", [False, True])
@pytest.mark.parametrize("gives", ["environment", "argument"])
def test_a_password_goes_nowhere_else(
    shop: Shop, listener: Listener, is_extracted: bool, gives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to another host, by whatever part of the URL it is named; each refusal says what to do."""
    source = shop.source
    password = None
    if gives == "environment":
        monkeypatch.setenv(PASSWORD_VARIABLE, "s3cret")
    else:
        password = "s3cret"
    if is_extracted:
        shop.extract()
    there = f"{source.kind}://u@127.0.0.1:{listener.port}/shop"
    for url in (there, there.replace("u@", "v@")):
        _alter(shop, source=url)
        for named in (None, source.url, f"{source.url} mysql://u@127.0.0.1:1/shop"):
            said = []
            with pytest.raises(ConfigurationError) as caught:
                shop.extract(password=password, source=named)
            said.append(str(caught.value))
            if not is_extracted or named:
                status = update_status(shop.metastore, shop.table, password=password, source=named)
                said.append(status.source_error)
            assert not listener.was_connected()
            for text in said:
                assert PREFIX + "source" in text
                assert "s3cret" not in text
                assert SOURCE_VARIABLE in text or "the last extraction was of" in text
    for hidden in (
        f"{source.url}?hostaddr=127.0.0.1&port={listener.port}",
        f"{source.url}?host=localhost",
        f"{source.url}?read_default_file=/etc/x",
        f"{source.url}?init_command=DROP+TABLE+orders",
        f"{source.url}?plugin=x",
    ):
        _alter(shop, source=hidden)
        with pytest.raises(ConfigurationError, match="after the \\? is not allowed"):
            shop.extract(password=password, source=source.url)
    _alter(shop, source=source.url)
    with pytest.raises(ConfigurationError, match=f"set {SOURCE_VARIABLE}='{source.url}'"):
        shop.extract(password=password, source=None)
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [1]


@pytest.mark.parametrize("source", KINDS[1:2], indirect=True)
def test_nor_does_the_binary_log_send_it(shop: Shop, listener: Listener) -> None:
    """It has a connection of its own."""
    there = f"mysql://u@127.0.0.1:{listener.port}/shop"
    _alter(shop, method="binlog", source=there)
    shop.metastore.set_table_parameters(
        *shop.table.split("."), {PREFIX + "version_column": None, PREFIX + "overlap": None}
    )
    for command in (shop.extract, shop.disable):
        with pytest.raises(
            ConfigurationError, match=f"{PREFIX}source is {there}, but only .* may be connected to"
        ):
            command()
    assert not listener.was_connected()


@pytest.mark.parametrize("source", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overlap", "60 SECOND UNION SELECT 77, k, k FROM secret -- "),
        ("overlap", "0 UNION SELECT id, item, at FROM secret -- "),
        ("overlap", "٣"),
        ("overlap", "1e3"),
        ("time_zone", "UTC') + interval '1 year' * ('1"),
        ("time_zone", "../../etc/passwd"),
        ("identifier", "'; DROP TABLE orders; --"),
        ("source_table", ""),
        ("source_table", "orders\x00"),
        ("key", '["id", "id"]'),
        ("key", "[]"),
        ("key", '[{"id": 1}]'),
        ("key", "[" * 100_000),
        ("ignored_columns", '"v"'),
        ("null_for", "[1]"),
        ("method", "guess"),
        ("method", "changelog"),
        ("state", "gone"),
        ("compares_keys", "yes"),
        ("enabled_at", "\x1b[2J"),
        ("fingerprint", '{"columns": {"a": 1}}'),
        ("fingerprint", "[]"),
        ("version_column", ""),
        ("source", "oracle://u@h/db"),
        ("source", "postgresql://u:s3cret@h/db"),
    ],
)
def test_each_property_is_of_its_type(shop: Shop, name: str, value: str) -> None:
    """What is not is refused by every command, which names table, property, value and what is allowed."""
    _alter(shop, **{name: value})
    for text in _each_command(shop):
        assert f"table {shop.table}: " in text
        assert PREFIX + name in text or "method" in text
        assert "s3cret" not in text
        assert "ALTER TABLE" in text
    _alter(shop, state="enabled")
    assert shop.rows() == []


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS, indirect=True)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("version_column", "v) FROM orders UNION SELECT item FROM secret --"),
        ("version_column", "item"),
        ("key", '["id) UNION SELECT 1 --"]'),
        ("ignored_columns", '["v\'; DROP TABLE orders; --"]'),
        ("source_table", "orders; DROP TABLE orders"),
        ("source_table", 'orders" UNION SELECT * FROM "secret'),
        ("source_table", "orders` UNION SELECT * FROM `secret"),
    ],
)
def test_a_name_that_the_source_does_not_have_is_refused(shop: Shop, name: str, value: str) -> None:
    """By a typed error; nothing of it is run."""
    if shop.source.kind == "sqlite" and value == "item":
        value = "items"  # a column of SQLite holds any value
    _alter(shop, **{name: value})
    with pytest.raises(Exception, match=r".") as caught:
        shop.extract()
    assert type(caught.value).__module__ == "mutation_api.errors"
    assert shop.rows() == []
    assert shop.source.rows("SELECT COUNT(*) FROM orders") == [(1,)]


@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_another_table_of_the_source_is_not_followed(shop: Shop) -> None:
    """After the first extraction, with whatever is said of the source."""
    shop.extract()
    for values in ({"source_table": "secret"}, {"identifier": "deadbeef"}):
        before = shop.metastore.get_table(*shop.table.split(".")).parameters
        _alter(shop, **values)
        for text in _each_command(shop):
            assert "the last extraction was of table orders" in text
        _alter(shop, **{name: before[PREFIX + name] for name in values})
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [1]


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS, indirect=True)
@pytest.mark.parametrize(
    "bound",
    ["1 UNION SELECT 77", "1\\", "'; DROP TABLE orders; --", "{0}", "", "' || (SELECT 1) || '", "1e", "٣"],
)
def test_a_bound_is_a_value(shop: Shop, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position with another one is refused before anything is read; an empty one reads all."""
    shop.extract()
    of = ProgressMark.of

    def altered(text: str) -> Any:
        found = of(text)
        object.__setattr__(found, "bound", bound)
        return found

    monkeypatch.setattr(ProgressMark, "of", altered)
    is_text_of_sqlite = shop.source.kind == "sqlite" and bound == "' || (SELECT 1) || '"
    if not bound or is_text_of_sqlite:
        shop.extract()
    else:
        with pytest.raises(SourcePositionError, match="bound"):
            shop.extract()
    assert [row["id"] for row in shop.rows()] == [1]


TEXTS = {"postgresql": ("text", "varchar(9)", "uuid"), "mysql": ("varchar(9)", "text", "enum('a')", "time")}


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_a_version_column_of_texts_is_refused_by_each_extraction(shop: Shop) -> None:
    """And by enable: the order of texts depends on collations, and no overlap can be subtracted."""
    for number, kind in enumerate(TEXTS[shop.source.kind]):
        shop.source.run(f"ALTER TABLE orders ADD w{number} {kind}")
        ignored = ["v", *(f"w{each}" for each in range(number + 1))]
        _alter(shop, version_column=f"w{number}", ignored_columns=json.dumps(ignored))
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=f"w{number} .* cannot be the version column, only"):
                shop.extract()
    _alter(shop, version_column="v")
    shop.extract()


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_a_zone_is_the_same_on_both_sides(source: Source, tmp_path: Path) -> None:
    """The server's CET has no summer time."""
    source.run("CREATE TABLE orders (id int PRIMARY KEY, item text, at timestamptz)")
    shop = Shop(source, InMemoryMetastore(tmp_path, capabilities=HIVE_4_1), "default", COLUMNS)
    for zone, said in (
        ("CET", "CET.*another zone: .* and 2024-07-15 13:00:00 there"),
        ("+05:30", "expected the name of a time zone"),
        ("Nowhere/City", "expected the name of a time zone"),
        ("UTC'", "expected the name of a time zone"),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(said) if "CET" not in said else said):
            shop.enable(time_zone=zone)
    source.run("INSERT INTO orders VALUES (1, 'tea', '2024-07-01 12:00+00')")
    shop.enable(time_zone="Europe/Berlin")
    shop.extract()
    assert str(shop.rows()[0]["at"]) == "2024-07-01 14:00:00"


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_an_overlap_is_neither_taken_away_nor_endless(shop: Shop) -> None:
    """Without one, late rows would be missed; MySQL would take NULL for a time before the first one."""
    shop.metastore.set_table_parameters(*shop.table.split("."), {PREFIX + "overlap": None})
    with pytest.raises(ConfigurationError, match="pass an overlap"):
        shop.extract()
    _alter(shop, version_column="at", overlap="999999999999")
    with pytest.raises(ConfigurationError, match=r"overlap=999999999999: .* at most 316,224,000"):
        shop.extract()
    _alter(shop, version_column="at", overlap="316224000")
    shop.extract()


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_what_tasks_get_has_no_password(shop: Shop) -> None:
    """The driver alone reads the source."""
    settings = require_settings(shop.metastore, shop.table, "enabled")
    access = SourceAccess(password=shop.source.password, source=shop.source.url)
    with closing(capture_of(settings, shop.table, access, replaces=False)) as capture:
        info = get_table(shop.metastore, shop.table)
        version = check_mutable(info, shop.metastore.capabilities(), TableRole.SINK, {})
        target = describe(info, version, TableRole.SINK, create_partitions=True, time_zone=None)
        batch = capture.read_local([SourceTable("orders", target, ("id",))], {})
        sent = cloudpickle.dumps(batch)
    assert shop.source.password
    assert shop.source.password.encode() not in sent


@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_settings_of_a_position_stay(shop: Shop) -> None:
    """With another column, key, zone or method, rows would be missed or come twice."""
    shop.source.run("ALTER TABLE orders ADD w INTEGER")
    _alter(shop, ignored_columns='["v", "w"]')
    shop.extract()
    before = shop.metastore.get_table(*shop.table.split(".")).parameters
    for name, value in {
        "version_column": "w",
        "key": '["item"]',
        "time_zone": "Europe/Berlin",
        "method": "row-version-insert",
        "overlap": "0",
        "verifies_version": "false",
        "compares_keys": "true",
    }.items():
        _alter(shop, **{name: value})
        with pytest.raises(
            ConfigurationError, match=f"{PREFIX}{name} is .* the last extraction was made with"
        ):
            shop.extract()
        _alter(shop, **{name: before[PREFIX + name]})
    shop.extract()
