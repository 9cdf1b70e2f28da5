"""``hive-mutate abort`` on a real metastore."""

from __future__ import annotations

import pytest

from metastore_client.embedded.server import EmbeddedMetastore
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    TxnState,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK

pytestmark = pytest.mark.slow


def written(table: str) -> LockComponent:
    """A lock that a writer of the table needs."""
    return LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", table, None, DataOperationType.UPDATE
    )


def test_open_transactions_are_aborted(
    embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several at once, and once more without harm.

    They hold locks to write: the server soon forgets aborted transactions that touched nothing.
    """
    uri = embedded_metastore.uri
    with open_client(uri) as client:
        txn_ids = [client.open_txn("u", "h", "a") for _ in range(2)]
        for number, txn_id in enumerate(txn_ids):
            client.lock(LockRequest((written(f"t{number}"),), txn_id, "u", "h", "a"))
        for _ in range(2):
            assert main(["abort", *map(str, txn_ids), "--metastore", uri]) == EXIT_OK
        states = {t.state for t in client.get_open_txns().txns if t.id in txn_ids}
    assert states <= {TxnState.ABORTED}
    assert f"transaction {txn_ids[0]} is aborted" in capsys.readouterr().out


def test_an_unknown_transaction_is_an_error(
    embedded_metastore: EmbeddedMetastore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names it."""
    assert main(["abort", "9000000", "--metastore", embedded_metastore.uri]) == EXIT_FAILED
    assert "9000000" in capsys.readouterr().err


def test_no_address_at_all_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how to give an address."""
    monkeypatch.delenv("HIVE_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert main(["abort", "1"]) == EXIT_FAILED
    assert "HIVE_CONF_DIR" in capsys.readouterr().err
