"""The generated structures: what they send, and what they can receive."""

from __future__ import annotations

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAccelerated
from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer

from metastore_client._thrift.gen import ttypes


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
