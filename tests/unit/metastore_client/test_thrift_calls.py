"""Decisions before and after a call; tests with real servers are in contract and integration."""

from __future__ import annotations

import pickle

import pytest
from thrift.Thrift import TApplicationException

from metastore_client._thrift.gen import ttypes
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    UnsupportedByServerError,
)
from tests.unit.metastore_client.scripted_metastore import Scripted, break_line, fail, tell


def test_an_unknown_call_keeps_the_line(scripted: Scripted) -> None:
    """A server without the call says so and goes on."""
    scripted.answers += [fail(TApplicationException.UNKNOWN_METHOD)] * 2
    for _ in range(2):
        with pytest.raises(UnsupportedByServerError):
            scripted.client.get_open_txns()
    assert len(scripted.lines) == 1


def test_an_internal_error_keeps_the_line_and_is_not_repeated(scripted: Scripted) -> None:
    """The server failed, and would fail again."""
    scripted.answers += [fail(TApplicationException.INTERNAL_ERROR)]
    with pytest.raises(MetastoreError, match="as scripted"):
        scripted.client.get_open_txns()
    assert scripted.calls == ["get_open_txns_info"]
    assert not scripted.lines[0].is_closed


def test_a_setting_is_asked_once_on_a_connection(scripted: Scripted) -> None:
    """A server has other settings only after a new start, which ends the connection."""
    client = scripted.client
    scripted.answers += [tell("77s"), tell("88s"), break_line, tell("99s")]
    assert [client.get_config_value("hive.txn.timeout", "?") for _ in range(3)] == ["77s"] * 3
    assert client.get_config_value("hive.txn.manager", "?") == "88s"
    with pytest.raises(MetastoreUnavailableError):
        client._call("get_open_txns_info")
    assert [client.get_config_value("hive.txn.timeout", "?") for _ in range(2)] == ["99s"] * 2
    assert scripted.calls.count("get_config_value") == 3


def test_a_malformed_request_costs_the_line(scripted: Scripted) -> None:
    """The server hangs up after it, so the connection is thrown away at once."""
    scripted.answers += [fail(TApplicationException.PROTOCOL_ERROR)]
    with pytest.raises(MetastoreError):
        scripted.client.get_open_txns()
    assert scripted.lines[0].is_closed


def test_a_request_that_cannot_be_encoded_costs_the_line(scripted: Scripted) -> None:
    """Its first bytes would garble the next call."""
    with pytest.raises(MetastoreError, match="encoded"):
        scripted.client._call("get_partitions_by_names", "d", "t", ["ds=a", None])
    assert scripted.lines[0].is_closed
    assert scripted.calls == []


def test_an_interrupt_costs_the_line(scripted: Scripted) -> None:
    """The answer still on its way must not be taken for that of the next call."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    scripted.answers += [interrupt]
    with pytest.raises(KeyboardInterrupt):
        scripted.client.get_open_txns()
    assert scripted.lines[0].is_closed


def test_a_missing_required_field_is_not_sent(scripted: Scripted) -> None:
    """The error names structure and field."""
    with pytest.raises(InvalidRequestError, match=r"OpenTxnRequest.*user"):
        scripted.client._call("open_txns", ttypes.OpenTxnRequest(num_txns=1, hostname="h"))
    with pytest.raises(InvalidRequestError, match=r"Table\.tableName must be a string"):
        scripted.client._call("create_table", ttypes.Table(tableName=7))
    assert scripted.lines == []


def test_the_error_survives_pickling() -> None:
    """Spark carries errors between processes."""
    error = pickle.loads(pickle.dumps(MetastoreUnavailableError("gone", outcome_unknown=True)))
    assert (str(error), error.outcome_unknown) == ("gone", True)
