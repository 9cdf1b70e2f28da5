"""The protocol and its implementations have the same signatures."""

from __future__ import annotations

import inspect

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore

CALLS = [name for name in vars(MetastoreClient) if not name.startswith("_")]


@pytest.mark.parametrize("implementation", [InMemoryMetastore, ThriftMetastoreClient])
@pytest.mark.parametrize("call", CALLS)
def test_an_implementation_takes_and_gives_what_the_protocol_says(
    implementation: type[MetastoreClient], call: str
) -> None:
    """Names, kinds, defaults and types: a caller must not depend on which one it has."""
    expected = inspect.signature(getattr(MetastoreClient, call))
    assert inspect.signature(getattr(implementation, call)) == expected


def test_the_protocol_has_calls() -> None:
    """The test above must not pass because it has nothing to look at."""
    assert {"open_txn", "lock", "commit_txn"} <= set(CALLS)
