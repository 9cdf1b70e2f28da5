"""A metastore whose answers a test writes down beforehand."""

from __future__ import annotations

from collections.abc import Callable

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_client import ThriftMetastoreClient

Answer = Callable[[TBinaryProtocol, str, int], None]


class ScriptedTransport(TMemoryBuffer):
    """A connection to a server that answers each request by a script."""

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


def tell(text: str) -> Answer:
    """Answer with a text."""

    def answer(protocol: TBinaryProtocol, name: str, sequence: int) -> None:
        protocol.writeMessageBegin(name, TMessageType.REPLY, sequence)
        protocol.writeStructBegin("result")
        protocol.writeFieldBegin("success", TType.STRING, 0)
        protocol.writeString(text)
        protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()
        protocol.writeMessageEnd()

    return answer


def break_line(protocol: TBinaryProtocol, name: str, sequence: int) -> None:
    raise TTransportException(TTransportException.END_OF_FILE, "cut")


class Scripted:
    """A client on scripted connections; records the connections and the names of the calls."""

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
