"""What the Thrift client decides before and after a call; real servers are in contract and integration."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer, TTransportException

from metastore_client._thrift.gen import ttypes
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    UnsupportedByServerError,
)
from metastore_client.hive_site import MetastoreConfig
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.thrift_client import ThriftMetastoreClient

Answer = Callable[[TBinaryProtocol, str, int], None]


class ScriptedTransport(TMemoryBuffer):
    """A line to a server that answers each request by a script."""

    def __init__(self, answers: list[Answer], log: list[str]) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False
        self._answers = answers
        self._log = log

    def isOpen(self) -> bool:
        return not self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def flush(self) -> None:
        name, _, sequence = TBinaryProtocol(TMemoryBuffer(self.sent)).readMessageBegin()
        self.sent = b""
        self._log.append(name)
        answer = TMemoryBuffer()
        self._answers.pop(0)(TBinaryProtocol(answer), name, sequence)
        self._buffer = TMemoryBuffer(answer.getvalue())._buffer

    def read(self, size: int) -> bytes:
        return bytes(self._buffer.read(size))


def fail(type: int) -> Answer:
    def answer(protocol: TBinaryProtocol, name: str, sequence: int) -> None:
        protocol.writeMessageBegin(name, TMessageType.EXCEPTION, sequence)
        TApplicationException(type, "as scripted").write(protocol)
        protocol.writeMessageEnd()

    return answer


def break_line(protocol: TBinaryProtocol, name: str, sequence: int) -> None:
    raise TTransportException(TTransportException.END_OF_FILE, "cut")


class Scripted:
    """A client on scripted lines; remembers the lines and the names of the calls."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.lines: list[ScriptedTransport] = []
        self.calls: list[str] = []
        config = MetastoreConfig.load("thrift://scripted:1")
        self.client = ThriftMetastoreClient(
            MetastoreConfig(config.addresses, sets_user=False), open_socket=self._open
        )

    def _open(self, *_: object) -> ScriptedTransport:
        self.lines.append(ScriptedTransport(self.answers, self.calls))
        return self.lines[-1]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.client.close()


def lock_request(**changes: object) -> LockRequest:
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "d", "t", None, DataOperationType.UPDATE
    )
    values = {
        "components": (component,),
        "txn_id": 1,
        "user": "u",
        "hostname": "h",
        "agent_info": "a",
        **changes,
    }
    return LockRequest(**values)  # type: ignore[arg-type]


def test_what_a_server_reads_differently_when_it_is_left_out_is_sent(scripted: Scripted) -> None:
    """The conflict check of 4.x at commit, and that we know insert-only tables."""
    sent: list[Any] = []

    def keep(name: str, *arguments: Any, **_: object) -> Any:
        sent.append(arguments[0])
        return ttypes.GetTableResult(table=ttypes.Table(sd=ttypes.StorageDescriptor()))

    scripted.client._call = keep  # type: ignore[method-assign]
    scripted.client.commit_txn(7)
    scripted.client.get_table("D", "T")
    commit, get_table = sent
    assert (commit.txnid, commit.exclWriteEnabled) == (7, False)
    assert (get_table.dbName, get_table.tblName, get_table.capabilities.values) == ("d", "t", [1, 2])


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


def test_a_malformed_request_costs_the_line(scripted: Scripted) -> None:
    """The server hangs up after it, so the line is given up at once."""
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


def test_a_broken_line_is_tried_once_more_for_reads_and_never_for_locks_and_commits(
    scripted: Scripted,
) -> None:
    """As often as configured; the error tells that the call may have worked."""
    scripted.answers += [break_line] * 4
    for call in (
        scripted.client.get_open_txns,
        lambda: scripted.client.lock(lock_request()),
        lambda: scripted.client.commit_txn(1),
    ):
        with pytest.raises(MetastoreUnavailableError) as caught:
            call()
        assert caught.value.outcome_unknown
    assert scripted.calls == ["get_open_txns_info", "get_open_txns_info", "lock", "commit_txn"]


@pytest.mark.parametrize(
    "request_",
    [
        lock_request(txn_id="1"),
        lock_request(txn_id=1 << 63),
        lock_request(user=None),
        lock_request(components=()),
    ],
)
def test_a_lock_request_of_wrong_types_is_not_sent(scripted: Scripted, request_: LockRequest) -> None:
    """Generated code would send half of it, and the server hang up."""
    with pytest.raises(InvalidRequestError):
        scripted.client.lock(request_)
    assert scripted.lines == []


def test_a_missing_required_field_is_not_sent(scripted: Scripted) -> None:
    """The error names structure and field."""
    with pytest.raises(InvalidRequestError, match=r"OpenTxnRequest.*user"):
        scripted.client._call("open_txns", ttypes.OpenTxnRequest(num_txns=1, hostname="h"))
    with pytest.raises(InvalidRequestError, match=r"Table\.tableName must be a text"):
        scripted.client._call("create_table", ttypes.Table(tableName=7))
    assert scripted.lines == []


def test_optional_fields_that_are_not_set_are_absent() -> None:
    """A default written on the wire would change what servers do."""
    for name in ttypes.__dict__:
        spec = getattr(getattr(ttypes, name), "thrift_spec", None)
        for entry in filter(None, spec or ()):
            assert entry[4] is None, f"{name}.{entry[2]} has a default"


@pytest.mark.parametrize(
    "protocol", [TBinaryProtocol, TBinaryProtocolAccelerated, TCompactProtocolAccelerated]
)
def test_a_skewed_table_can_be_read(protocol: type) -> None:
    """Its map has lists as keys, which Python cannot hold; they come as tuples."""
    sent = ttypes.SkewedInfo(
        skewedColNames=["a"], skewedColValues=[["1"]], skewedColValueLocationMaps={("1",): "file:/x"}
    )
    buffer = TMemoryBuffer()
    transport = TBufferedTransport(buffer)
    sent.write(protocol(transport))
    transport.flush()
    received = ttypes.SkewedInfo()
    received.read(protocol(TBufferedTransport(TMemoryBuffer(buffer.getvalue()))))
    assert received == sent


def test_the_error_survives_pickling() -> None:
    """Spark carries errors between processes."""
    error = pickle.loads(pickle.dumps(MetastoreUnavailableError("gone", outcome_unknown=True)))
    assert (str(error), error.outcome_unknown) == ("gone", True)
