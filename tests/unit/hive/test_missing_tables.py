"""A table that does not exist is the same error, no matter which call meets it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from metastore_client.testing import InMemoryMetastore
from mutation_api import (
    ConfigurationError,
    Hive,
    HiveError,
    MutatorClientBuilder,
    TableNotFoundError,
    TableNotMutableError,
)
from mutation_api.cdc import disable_update, update_status
from mutation_api.upkeep import compact_table, doctor, replication_of, sweep, table_history, verify_table
from tests.unit.hive.conftest import MakeHive

MISSING = "default.order"

CALLS: dict[str, Callable[[Hive, str], object]] = {
    "transaction": lambda hive, name: hive.transaction(name).begin(),
    "source of a transaction": lambda hive, name: hive.transaction("default.orders", read=[name]).begin(),
    "snapshot": lambda hive, name: hive.snapshot(name).open(),
    "past": lambda hive, name: hive.snapshot(name, as_of=1).open(),
    "client": lambda hive, name: _builder(hive).add_sink_table(name).build().connect(),
    "snapshot of a client": lambda hive, name: _builder(hive).build().connect().open_snapshot(name),
    "history": lambda hive, name: table_history(hive.metastore, name),
    "verify": lambda hive, name: verify_table(hive.metastore, name),
    "compact": lambda hive, name: compact_table(hive.metastore, name),
    "doctor": lambda hive, name: doctor(hive.metastore, name),
    "replication": lambda hive, name: replication_of(hive.metastore, name),
    "sweep": lambda hive, name: [*sweep(hive.metastore, name)],
    "update": lambda hive, name: update_status(hive.metastore, name),
    "disable": lambda hive, name: disable_update(hive.metastore, name),
}


def _builder(hive: Hive) -> MutatorClientBuilder:
    return MutatorClientBuilder().metastore(hive.metastore)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_names_table_address_and_similar_names(
    call: Callable[[Hive, str], object], make_hive: MakeHive
) -> None:
    """It is caught as each of the classes that calls raised before there was a class of its own."""
    hive = make_hive()
    with pytest.raises(TableNotFoundError) as caught:
        call(hive, MISSING)
    assert str(caught.value) == (
        f"table default.order does not exist at {hive.metastore.address}; similar names: default.orders. "
        "Check the name, or create the table with hive.create_table(…) or hive-mutate create-table"
    )
    for each in (TableNotMutableError, ConfigurationError, HiveError):
        assert isinstance(caught.value, each)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_says_that_the_database_is_missing(
    call: Callable[[Hive, str], object], make_hive: MakeHive
) -> None:
    """A table of a database that does not exist."""
    with pytest.raises(TableNotFoundError, match=r"nowhere\.t does not .* its database nowhere does not"):
        call(make_hive(), "nowhere.t")


def test_a_table_that_is_dropped_during_its_transaction(make_hive: MakeHive) -> None:
    """The commit finds it missing."""
    hive = make_hive(keys=())
    with (
        pytest.raises(TableNotFoundError, match="was dropped while transaction"),
        hive.transaction("default.orders") as tx,
    ):
        tx.table("default.orders").append(pa.table({"id": [1], "item": ["tea"], "price": [None]}))
        hive.metastore.drop_table("default", "orders", delete_data=False)


def test_a_table_that_is_dropped_while_its_database_is_swept(
    make_hive: MakeHive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, so it is left out of the report."""
    hive = make_hive()
    assert isinstance(hive.metastore, InMemoryMetastore)
    monkeypatch.setattr(hive.metastore, "get_all_tables", lambda _: ["gone", "orders"])
    assert [each.table for each in sweep(hive.metastore, "default")] == ["default.orders"]
