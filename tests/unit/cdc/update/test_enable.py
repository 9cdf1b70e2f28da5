"""Enabling and disabling: what is refused, before anything is made; what is stored; what is removed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import ColumnInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint, ProgressMark
from mutation_api.cdc.update.settings import PREFIX, ObjectNames, UpdateSettings
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ContradictionError,
    OutstandingChangesError,
    RecordLayoutError,
    SourcePositionError,
)
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import MakeShop

NO_KEY = "CREATE TABLE orders (id INTEGER, item TEXT, price TEXT)"


def _properties(shop: Shop) -> dict[str, str]:
    parameters = shop.metastore.get_table("default", "orders").parameters
    return {name: value for name, value in parameters.items() if name.startswith(PREFIX)}


def test_g1_without_a_key_nothing_is_done(make_shop: MakeShop) -> None:
    """No primary key and no key columns: refused, and neither side was touched."""
    shop = make_shop(NO_KEY)
    with pytest.raises(ConfigurationError, match=r"has no primary key\. Add one, or name columns"):
        shop.enable()
    assert shop.source.objects() == []
    assert _properties(shop) == {}
    shop.enable(key=["ID"])
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["tea"]


def test_the_report_is_json(make_shop: MakeShop) -> None:
    """The source, the key, the method and the objects, with the statements that create them."""
    shop = make_shop()
    planned = json.loads(json.dumps(shop.enable(method="changelog", dry_run=True).to_dict()))
    assert planned["dry_run"]
    done = json.loads(json.dumps(shop.enable(method="changelog").to_dict()))
    assert done == planned | {"dry_run": False, "objects": done["objects"]}
    assert (done["table"], done["key"], done["method"]) == ("default.orders", ["id"], "changelog")
    assert [each["kind"] for each in done["objects"]] == [each["kind"] for each in planned["objects"]]
    assert all(each["name"] and each["create"] for each in done["objects"])


def test_g2_an_insert_only_method_needs_the_primary_key(make_shop: MakeShop) -> None:
    """Unless its verification is switched off."""
    shop = make_shop(NO_KEY)
    with pytest.raises(ConfigurationError, match="or disable its verification"):
        shop.enable(method="changelog-insert", key=["id"])
    assert _properties(shop) == {}
    shop.enable(method="changelog-insert", key=["id"], verify_key=False)
    assert shop.source.objects()


@pytest.mark.thorough
def test_g2_an_insert_only_method_sees_inserts_alone(make_shop: MakeShop) -> None:
    """Updates and deletes are not captured; an insert of a present key with other values is refused."""
    shop = make_shop()
    shop.enable(method="changelog-insert")
    shop.extract()
    shop.source.run(
        "INSERT INTO orders VALUES (1, 'tea', '1'), (2, 'gone', '1')", "DELETE FROM orders WHERE id = 2"
    )
    shop.extract()
    shop.source.run("UPDATE orders SET item = 'changed'")
    assert shop.extract().ingested.position is None
    shop.source.run("DELETE FROM orders", "INSERT INTO orders VALUES (1, 'other', '1')")
    with pytest.raises(ContradictionError, match=r'"id":1.*item "tea" → "other"'):
        shop.extract()
    assert [row["item"] for row in shop.rows()] == ["tea"]


def test_each_method_says_what_it_sees() -> None:
    """As the document's table of methods."""
    assert CaptureMethod.CHANGELOG.sees == CaptureMethod.BINLOG.sees == ("insert", "update", "delete")
    assert CaptureMethod.ROW_VERSION.sees == ("insert", "update")
    assert CaptureMethod.CHANGELOG_INSERT.sees == CaptureMethod.ROW_VERSION_INSERT.sees == ("insert",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "row-version"}, "needs the name of a monotonically increasing column"),
        ({"version_column": "id"}, "does not use a version column"),
        ({"compare_keys": True}, "only row-version can"),
        ({"verify_key": False}, "always verifies its key"),
        ({"method": "binlog"}, "only available for MySQL and MariaDB"),
        ({"key": ["nothing"]}, "does not have the column nothing"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    make_shop: MakeShop, options: dict[str, object], message: str
) -> None:
    """And nothing was made."""
    shop = make_shop()
    with pytest.raises(ConfigurationError, match=message):
        shop.enable(**options)
    assert (shop.source.objects(), _properties(shop)) == ([], {})


def test_columns_must_agree(make_shop: MakeShop) -> None:
    """Or be ignored by name."""
    shop = make_shop("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price TEXT, secret TEXT)")
    with pytest.raises(RecordLayoutError, match=r"Hive lacks secret: .*--ignore-column secret,"):
        shop.enable()
    shop.enable(ignored_columns=["secret"])
    shop.extract()


def test_a_stopped_enable_goes_on(make_shop: MakeShop) -> None:
    """The identifier is stored first, so the second run makes the same objects; others are refused."""
    shop = make_shop()
    metastore = shop.metastore
    assert isinstance(metastore, InMemoryMetastore)
    metastore.fail_next("set_table_parameters", MetastoreUnavailableError("gone"), after=True)
    with pytest.raises(ConnectionFailedError):
        shop.enable()
    assert _properties(shop)[PREFIX + "state"] == "enabling"
    assert shop.source.objects() == []
    with pytest.raises(ConfigurationError, match="is enabling: enable it again"):
        shop.extract()
    identifier = _properties(shop)[PREFIX + "identifier"]
    shop.enable()
    shop.enable()
    assert _properties(shop)[PREFIX + "state"] == "enabled"
    assert all(identifier in name for name in shop.source.objects())
    with pytest.raises(ConfigurationError, match="is already enabled, from orders of"):
        shop.enable(time_zone="Asia/Tokyo")


@pytest.mark.thorough
def test_two_tables_may_follow_one(make_shop: MakeShop) -> None:
    """Each has a log of its own."""
    shop = make_shop()
    other = Shop(
        shop.source,
        shop.metastore,
        "default",
        (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("price", "decimal(9,2)")),
        name="copy",
    )
    shop.enable()
    other.enable()
    for each in (shop, other):
        each.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.extract()
    other.extract()
    assert shop.rows() == other.rows() != []


def test_g15_disabling_is_refused_while_changes_are_outstanding(make_shop: MakeShop) -> None:
    """Then nothing has changed; when they are extracted or discarded, everything goes but the table."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    objects, properties = shop.source.objects(), _properties(shop)
    with pytest.raises(OutstandingChangesError, match="1 changes of orders have not been extracted"):
        shop.disable()
    assert (shop.source.objects(), _properties(shop)) == (objects, properties)
    shop.extract()
    shop.disable()
    assert (shop.source.objects(), _properties(shop)) == ([], {})
    assert shop.metastore.get_all_tables("default") == ["orders"]
    assert len(shop.rows()) == 1
    with pytest.raises(ConfigurationError, match="is not enabled"):
        shop.disable()


def test_g15_outstanding_changes_may_be_discarded(make_shop: MakeShop) -> None:
    """On request."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.disable(discard=True)
    assert shop.source.objects() == []
    assert shop.rows() == []


def test_settings_are_the_same_from_their_properties() -> None:
    """Every kind of value survives; a damaged one is named."""
    settings = UpdateSettings(
        identifier="0a1b2c3d",
        state="enabled",
        source=SourceUrl.of("postgresql://u@h/db"),
        source_table="s.ördérs",
        key=("a", "b,c"),
        method=CaptureMethod.ROW_VERSION,
        version_column="v",
        overlap=Decimal("1.5"),
        compares_keys=True,
        fingerprint=Fingerprint("1", {"a": "b"}),
        ignored_columns=("x",),
    )
    properties = {name: value for name, value in settings.to_properties().items() if value is not None}
    assert all(properties.values())  # Hive's compactor fails on an empty one
    assert UpdateSettings.of("d.t", properties) == settings
    assert UpdateSettings.of("d.t", {"other": "x"}) is None
    with pytest.raises(ConfigurationError, match=r"update\.method is 'guess', expected one of"):
        UpdateSettings.of("d.t", {**properties, PREFIX + "method": "guess"})
    assert settings.names == ObjectNames("hm__rd_rs_0a1b2c3d_log", "hm__rd_rs_0a1b2c3d")


def test_a_url_must_not_have_a_password(make_shop: MakeShop) -> None:
    """It would be stored and shown."""
    shop = make_shop()
    shop.source.url = "postgresql://me:secret@host/db"
    with pytest.raises(ConfigurationError, match="must not contain a password") as refused:
        shop.enable()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compare_keys": "yes"}, "compare_keys='yes': expected True or False"),
        ({"is_loaded": 1}, "is_loaded=1: expected True or False"),
        ({"key": "id"}, r"key='id': expected a list of names, such as \['id'\]"),
        ({"key": ["id", "ID"]}, "name each column of orders only once"),
        ({"key": [None]}, "does not have the column None"),
        ({"ignored_columns": ["a\x00"]}, "expected a name of 1 to 500 characters, without NUL"),
        ({"source_table": ".orders"}, "expected TABLE or SCHEMA.TABLE"),
        ({"source_table": "\ud800"}, "expected a name of 1 to 500"),
        ({"time_zone": "+05:30"}, "expected the name of a time zone"),
        ({"time_zone": None}, "expected the name of a time zone"),
        ({"overlap": "-1", "method": "row-version", "version_column": "id"}, "a number of at least 0"),
        ({"method": "guess"}, "method='guess': expected one of changelog, "),
    ],
)
def test_an_option_that_could_not_be_stored_is_refused(
    make_shop: MakeShop, options: dict[str, Any], said: str
) -> None:
    """What is stored can be read again."""
    shop = make_shop()
    with pytest.raises(ConfigurationError, match=said):
        shop.enable(**options)
    assert shop.source.objects() == []
    assert _properties(shop) == {}


def test_a_position_that_cannot_be_read_is_discarded(
    make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the refusal of the extraction says."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    of = ProgressMark.of
    monkeypatch.setattr(
        ProgressMark, "of", lambda text: of(text.replace('"extraction": 1', '"extraction": "x"'))
    )
    for command in (shop.extract, shop.disable):
        with pytest.raises((SourcePositionError, OutstandingChangesError), match=r"disable .*--discard"):
            command()
    shop.disable(discard=True)
    assert shop.source.objects() == []
    shop.enable()
    monkeypatch.undo()
    shop.extract()
