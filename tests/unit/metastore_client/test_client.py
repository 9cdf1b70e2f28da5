"""The protocol and its implementations have the same signatures."""

from __future__ import annotations

import inspect

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore

CALLS = [name for name, each in vars(MetastoreClient).items() if name[0] != "_" and callable(each)]


@pytest.mark.parametrize("implementation", [InMemoryMetastore, ThriftMetastoreClient])
@pytest.mark.parametrize("call", CALLS)
def test_an_implementation_takes_and_gives_what_the_protocol_says(
    implementation: type[MetastoreClient], call: str
) -> None:
    """Names, kinds, defaults and types: a caller must not depend on which one it has."""
    expected = inspect.signature(getattr(MetastoreClient, call))
    assert inspect.signature(getattr(implementation, call)) == expected


def test_two_servers_have_two_addresses() -> None:
    given = [MetastoreConfig.load(f"thrift://{host}:9083") for host in ("a", "b", "a,thrift://b")]
    clients = [InMemoryMetastore(), InMemoryMetastore(), *map(ThriftMetastoreClient, given)]
    assert len({client.address for client in clients}) == len(clients)


def test_the_protocol_has_calls() -> None:
    """The test above must not pass because it has nothing to look at."""
    assert {"open_txn", "lock", "commit_txn"} <= set(CALLS)
