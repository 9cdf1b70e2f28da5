"""AcidTableSerializer: the text form of an AcidTable, for sending it to workers.

``AcidTable:1:<payload>:<checksum>``: the payload is JSON, deflated, in URL-safe base64; the checksum is its
CRC-32 in hexadecimal. The text is ASCII without blanks, line ends, quotes or ``$``, so it may be a Spark
configuration value or an environment variable. Hive's own ``AcidTableV1:`` texts hold a Java object and
cannot be read.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib

from mutation_api.acid.version import AcidVersion
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, CheckConstraint, TableRole

__all__ = ["AcidTableSerializer"]

_VERSION = 1
_FORM = re.compile(r"AcidTable:([0-9]+):([A-Za-z0-9_=-]*):([0-9a-f]{8})")
_START = re.compile(r"AcidTable:([0-9]+):")
_SHOWN_CHARACTERS = 60
_MAX_BYTES = 128 << 20
"""A partition takes some 200 bytes."""
_ROWS_OF_FIELDS: dict[str, type] = {
    "columns": AcidColumn,
    "partition_keys": AcidColumn,
    "checks": CheckConstraint,
}
"""Fields of AcidTable that are tuples of a class whose fields are plain values."""

_DAMAGE = (LookupError, ValueError, TypeError, AttributeError, RecursionError)
"""Errors of a text that is not what :meth:`AcidTableSerializer.encode` writes."""


class AcidTableSerializer:
    """Turns an AcidTable into text and back."""

    @staticmethod
    def encode(table: AcidTable) -> str:
        """Write a table as text."""
        fields = {field.name: getattr(table, field.name) for field in dataclasses.fields(table)}
        for name in _ROWS_OF_FIELDS:
            fields[name] = [dataclasses.astuple(each) for each in fields[name]]
        fields["partition_spellings"] = dict(table.partition_spellings)
        fields["ambiguous_partitions"] = {c: [*names] for c, names in table.ambiguous_partitions.items()}
        fields["location"] = str(table.location)
        fields["partition_locations"] = {name: str(at) for name, at in table.partition_locations.items()}
        fields["version"] = table.version.value
        fields["role"] = table.role.value
        text = json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        payload = base64.urlsafe_b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")
        return f"AcidTable:{_VERSION}:{payload}:{_checksum(payload)}"

    @staticmethod
    def decode(text: str) -> AcidTable:
        """Read what :meth:`encode` wrote.

        Raises:
            ConfigurationError: the text is something else, is damaged, or comes from a newer release.
        """
        payload = _payload(text)
        try:
            fields = json.loads(_unpacked(base64.urlsafe_b64decode(payload)))
            for name, kind in _ROWS_OF_FIELDS.items():
                fields[name] = tuple(kind(*values) for values in fields[name])
            fields["bucket_columns"] = tuple(fields["bucket_columns"])
            fields["location"] = Location.parse(fields["location"])
            locations = fields["partition_locations"].items()
            fields["partition_locations"] = {name: Location.parse(text) for name, text in locations}
            ambiguous = fields["ambiguous_partitions"].items()
            fields["ambiguous_partitions"] = {name: tuple(others) for name, others in ambiguous}
            fields["version"] = AcidVersion(fields["version"])
            fields["role"] = TableRole(fields["role"])
            _check_names(fields)
            return AcidTable(**fields)
        except (*_DAMAGE, OSError, zlib.error) as error:
            raise ConfigurationError(f"damaged table text {_shown(text)}: {error}") from error


def _unpacked(packed: bytes) -> bytes:
    """Raises ValueError: it is longer than any table's text, and would take all memory."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(packed, _MAX_BYTES)
    if not unpacking.eof:
        raise ValueError(f"it is cut off, or has more than {_MAX_BYTES:,} bytes")
    return found


def _payload(text: str) -> str:
    start = _START.match(text)
    if not start:
        raise ConfigurationError(f"not a serialized table: {_shown(text)} (expected AcidTable:{_VERSION}:…)")
    version = int(start.group(1))
    if version != _VERSION:
        raise ConfigurationError(
            f"serialized table of version {version}, this release reads version {_VERSION}: "
            "use the same release on driver and workers"
        )
    form = _FORM.fullmatch(text)
    if not form or _checksum(form.group(2)) != form.group(3):
        raise ConfigurationError(
            f"damaged table text {_shown(text)} ({len(text)} characters): it was cut or changed"
        )
    return form.group(2)


def _check_names(fields: dict[str, object]) -> None:
    expected = {field.name for field in dataclasses.fields(AcidTable)}
    if set(fields) != expected:
        raise ValueError(f"fields that differ: {sorted(set(fields) ^ expected)}")


def _checksum(payload: str) -> str:
    return f"{zlib.crc32(payload.encode('ascii')):08x}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
