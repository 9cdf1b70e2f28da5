"""Growing columns of each type in real databases: no row is missed, whatever the version is."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.database import connect_database
from mutation_api.cdc.update.progress_mark import CaptureMethod
from mutation_api.cdc.update.settings import UpdateSettings
from mutation_api.errors import ConfigurationError
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow
EITHER = pytest.mark.usefixtures("either_engine")

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
TIMES = ("'2024-05-01 10:00:00.5'", "'2024-05-03 11:00:00.123456'", "'2024-05-02'")
NUMBERS = ("1", "50", "100", "7")
FLOATS = ("1.5", "50", "1234567.9", "7")
FINITE = ("'NaN'", "'Infinity'", "'-Infinity'")
VERSIONS = {
    "postgresql": {
        "smallint": NUMBERS,
        "bigint": (*NUMBERS, "9223372036854775807"),
        "numeric": (*FLOATS, *FINITE),
        "real": (*FLOATS, *FINITE),
        "double precision": (*FLOATS, "1e300", *FINITE),
        "date": (*TIMES, "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'12024-01-01'"),
        "timestamp": (*TIMES, "'infinity'", "'-infinity'", "'0044-03-15 BC'"),
        "timestamptz": ("'2024-05-01 10:00+03'", *TIMES, "'infinity'", "'-infinity'", "'0044-03-15 BC'"),
    },
    "mysql": {
        "int": NUMBERS,
        "bigint unsigned": (*NUMBERS, "18446744073709551615"),
        "decimal(10,3)": FLOATS,
        "float": FLOATS,
        "double": (*FLOATS, "1e300"),
        "date": (*TIMES, "'0000-00-00'", "'2024-00-00'"),
        "datetime(6)": (*TIMES, "'0000-00-00'", "'2024-05-00'"),
        "timestamp(6) NULL": (*TIMES, "'0000-00-00'"),
    },
    "sqlite": {
        "INTEGER": NUMBERS,
        "REAL": (*FLOATS, "9e999", "-9e999"),
        "TEXT": (*TIMES, "'it''s'", "''", "x'00'"),
        "": ("5", "'5'", "7.5", "x'00'", "9e999"),
    },
}
"""Kind of source -> type of a version column -> values, as SQL."""
ROUNDS, SEEDS, IDS = 14, 3, 12


def _shop(source: Source, place: Path, kind: str, overlap: str) -> Shop:
    source.run(
        "DROP TABLE IF EXISTS orders",
        f"CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20), v {kind})",
    )
    shop = Shop(source, InMemoryMetastore(place, capabilities=HIVE_4_1), "default", COLUMNS)
    shop.enable(method="row-version", version_column="v", overlap=overlap, ignored_columns=["v"])
    return shop


def _compare(source: Source, shop: Shop) -> None:
    shop.extract()
    wanted = sorted(source.rows("SELECT id, item FROM orders"))
    assert sorted((row["id"], row["item"]) for row in shop.rows()) == wanted


def _overlap(source: Source) -> str:
    return "" if source.kind == "sqlite" else "5"


def _mode(source: Source) -> list[str]:
    """A statement that makes MariaDB take zero dates."""
    return ["SET SESSION sql_mode = ''"] if source.kind == "mysql" else []


@pytest.mark.long
@EITHER
@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_a_row_is_read_whatever_its_version_is(source: Source, tmp_path: Path) -> None:
    """Each value of each type, as the version of an updated row and of a new one."""
    for number, (kind, versions) in enumerate(VERSIONS[source.kind].items()):
        shop = _shop(source, tmp_path / str(number), kind, _overlap(source))
        greatest = versions[1]
        source.run(f"INSERT INTO orders VALUES (0, 'first', {greatest}), (1, 'second', {greatest})")
        shop.extract()
        given = ["NULL", *versions]
        source.run(
            *_mode(source),
            *(f"INSERT INTO orders VALUES ({10 + n}, 'new', {version})" for n, version in enumerate(given)),
        )
        _compare(source, shop)
        for version in given:
            source.run(
                *_mode(source), f"UPDATE orders SET item = 'x' || {number}, v = {version} WHERE id = 1"
            )
            _compare(source, shop)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_random_versions(source: Source, seed: int, tmp_path: Path) -> None:
    """A change gives a version other than that of the row, up or down."""
    rng = random.Random(seed)
    for number, (kind, versions) in enumerate(VERSIONS[source.kind].items()):
        shop = _shop(source, tmp_path / str(number), kind, _overlap(source))
        present: dict[int, str] = {}
        for turn in range(ROUNDS):
            source.run(*_mode(source), *_changes(rng, versions, present, turn))
            _compare(source, shop)


def _changes(rng: random.Random, versions: tuple[str, ...], present: dict[int, str], turn: int) -> list[str]:
    """Some statements; ``present``: the versions of rows."""
    statements = []
    for step in range(rng.randrange(1, 4)):
        row, item = rng.randrange(IDS), f"{turn}.{step}"
        version = rng.choice(
            [each for each in (*versions, "NULL") if each != present.get(row) or each == "NULL"]
        )
        if row in present:
            statements.append(f"UPDATE orders SET item = '{item}', v = {version} WHERE id = {row}")
        else:
            statements.append(f"INSERT INTO orders VALUES ({row}, '{item}', {version})")
        present[row] = version
    return statements


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_random_transactions_that_stay_open(source: Source, seed: int, tmp_path: Path) -> None:
    """With xmin, extractions run while transactions are open; when all have ended, the tables are equal."""
    rng = random.Random(seed)
    source.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20))")
    shop = Shop(source, InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1), "default", COLUMNS)
    shop.enable(method="row-version", version_column="xmin")
    sessions = [source.session() for _ in range(4)]
    try:
        for turn in range(60):
            number = rng.randrange(len(sessions))
            row = 10 * rng.randrange(IDS) + number  # so that no session waits for another one
            sessions[number].execute(
                f"INSERT INTO orders VALUES ({row}, '{turn}') ON CONFLICT (id) "
                "DO UPDATE SET item = EXCLUDED.item"
            )
            if rng.random() < 0.4:
                rng.choice(sessions).commit()
            if rng.random() < 0.1:
                sessions[number].rollback()
            if rng.random() < 0.5:
                _compare(source, shop)
        for session in sessions:
            session.commit()
    finally:
        for session in sessions:
            session.close()
    _compare(source, shop)


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_a_column_without_an_order_to_grow_in_is_refused(source: Source, tmp_path: Path) -> None:
    """With the types that can be used; the method that is named then follows the table."""
    for number, kind in enumerate(("text", "time")):
        with pytest.raises(
            ConfigurationError, match=r"column v \(\w+.*cannot be the version column, only .*int"
        ):
            _shop(source, tmp_path / str(number), kind, "5")
    shop = Shop(source, InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1), "default", COLUMNS)
    shop.enable(ignored_columns=["v"])
    source.run("INSERT INTO orders VALUES (1, 'tea', NULL)")
    _compare(source, shop)


ALTERED = {
    "partition with old rows": ("ALTER TABLE orders ATTACH PARTITION old FOR VALUES FROM (100) TO (200)",),
    "rows rewritten": ("ALTER TABLE orders ALTER COLUMN item TYPE text USING item || ' again'",),
    "table swapped": (
        "CREATE TABLE other (LIKE orders INCLUDING ALL)",
        "INSERT INTO other SELECT id, item || '!', v FROM orders",
        "ALTER TABLE orders RENAME TO former",
        "ALTER TABLE other RENAME TO orders",
    ),
    "column added again": (
        "ALTER TABLE orders DROP COLUMN item",
        "ALTER TABLE orders ADD COLUMN item text DEFAULT 'tea'",
    ),
}
"""What changes rows without giving them a version, or brings rows with old ones."""


@EITHER
@pytest.mark.parametrize("version", ["xmin", "v"])
@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_an_altered_table_is_compared(source: Source, version: str, tmp_path: Path) -> None:
    """Rows are read that have versions below the bound; then reading goes on from there."""
    source.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text, v bigint) PARTITION BY RANGE (id)",
        "CREATE TABLE young PARTITION OF orders FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE old (id bigint NOT NULL PRIMARY KEY, item text, v bigint)",
        "INSERT INTO old VALUES (150, 'old', 1)",
        "INSERT INTO orders VALUES (1, 'tea', 50), (2, 'wine', 40)",
    )
    shop = Shop(source, InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1), "default", COLUMNS)
    overlap = "" if version == "xmin" else "5"
    shop.enable(method="row-version", version_column=version, overlap=overlap, ignored_columns=["v"])
    shop.extract()
    for what, statements in ALTERED.items():
        source.run(*statements)
        report = shop.extract()
        assert report.differences, what
        wanted = sorted(source.rows("SELECT id, item FROM orders"))
        assert sorted((row["id"], row["item"]) for row in shop.rows()) == wanted, what
        source.run("UPDATE orders SET item = 'changed', v = v + 60 WHERE id = 1")
        _compare(source, shop)


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_transactions_of_half_a_circle_ago_have_no_age(source: Source) -> None:
    """An extraction after so many transactions reads the whole table; what lies nearer has an age."""
    source.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
    database = connect_database(source.url, source.password)
    settings = UpdateSettings(
        identifier="12345678",
        state="enabled",
        source=SourceUrl.of(source.url),
        source_table="orders",
        key=("id",),
        method=CaptureMethod.ROW_VERSION,
        version_column="xmin",
    )
    with closing(database), database.snapshot() as snapshot:
        table = database.describe("orders")
        bound, is_far = database.version_bound(snapshot, table, settings, "")
        assert not is_far
        for distance, wanted in ((2**30, False), (2**31, True), (2**33, True)):
            assert database.version_bound(snapshot, table, settings, str(int(bound) - distance)) == (
                bound,
                wanted,
            )
