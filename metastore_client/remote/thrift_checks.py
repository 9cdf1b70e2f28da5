"""Checks of a Thrift request before any of it is sent.

Generated Python code encodes a request with a missing field half, and the server hangs up on it. So each
request is compared with the generated specification first.
"""

from __future__ import annotations

from typing import Any

from thrift.Thrift import TException, TType

from metastore_client.errors import InvalidRequestError

__all__ = ["check_argument"]

_INTEGER_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}


def check_argument(value: Any, where: str) -> None:
    """Refuse a request with a missing required field or a value of a wrong type.

    Generated code sends such a request half, and the server hangs up on it.
    """
    spec = getattr(value, "thrift_spec", None)
    if spec is None:
        if value is None:
            raise InvalidRequestError(f"{where}: an argument is missing")
        return
    try:
        value.validate()
    except TException as error:
        raise InvalidRequestError(f"{where}: {type(value).__name__}: {error}") from error
    for entry in filter(None, spec):
        field = getattr(value, entry[2])
        if field is not None:
            _check_field(field, entry[1], entry[3], f"{where}: {type(value).__name__}.{entry[2]}")


def _check_field(value: Any, kind: int, details: Any, where: str) -> None:
    """Check one value against its Thrift type; ``details`` come from the generated specification."""
    if kind == TType.STRUCT:
        check_argument(value, where)
    elif kind == TType.LIST:
        for item in value:
            _check_field(item, details[0], details[1], where)
    elif kind == TType.MAP:
        for key, item in value.items():
            _check_field(key, details[0], details[1], where)
            _check_field(item, details[2], details[3], where)
    elif kind == TType.STRING and not isinstance(value, str):
        raise InvalidRequestError(f"{where} must be a string, not {value!r}")
    elif kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[kind] - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            raise InvalidRequestError(
                f"{where} must be an integer of {_INTEGER_BITS[kind]} bits, not {value!r}"
            )
