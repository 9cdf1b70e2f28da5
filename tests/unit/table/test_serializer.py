"""AcidTableSerializer refuses what it did not write."""

from __future__ import annotations

import base64
import zlib

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable, AcidTableSerializer

TABLE = AcidTable(
    database="db",
    name="tablé",
    location=Location.parse("file:/warehouse/t ${x}"),
    partition_locations={"ds=é": Location.parse("s3a://b/x")},
    columns=(AcidColumn("id", "int"), AcidColumn("s", "struct<a:int,b:array<string>>")),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=8,
    bucket_columns=("id",),
    version=AcidVersion.V1_SPLIT,
    txn_id=17,
    partition_spellings={"ds=1": "ds=01"},
    time_zone="Europe/Berlin",
)


def text_of(payload: bytes) -> str:
    encoded = base64.urlsafe_b64encode(payload).decode()
    return f"AcidTable:1:{encoded}:{zlib.crc32(encoded.encode()):08x}"


def test_everything_survives() -> None:
    """The worker sees exactly the table that the driver had."""
    assert AcidTableSerializer.decode(AcidTableSerializer.encode(TABLE)) == TABLE


@pytest.mark.parametrize(
    "text", ["", "x", "AcidTableV1:AAAA", "AcidTable::x:00000000", " " + AcidTableSerializer.encode(TABLE)]
)
def test_foreign_text_is_refused(text: str) -> None:
    """The error says that a text is something else; also for a text of Hive's own serializer."""
    with pytest.raises(ConfigurationError, match="not a serialized table"):
        AcidTableSerializer.decode(text)


def test_a_newer_version_is_refused_by_number() -> None:
    """Driver and workers with different releases must not misunderstand each other."""
    newer = AcidTableSerializer.encode(TABLE).replace("AcidTable:1:", "AcidTable:2:")
    with pytest.raises(ConfigurationError, match="version 2, but this release reads version 1"):
        AcidTableSerializer.decode(newer)


def test_damage_anywhere_is_found() -> None:
    """Every single character that is lost or changed is detected."""
    text = AcidTableSerializer.encode(TABLE)
    for place in range(len("AcidTable:1:"), len(text)):
        other = "A" if text[place] != "A" else "B"
        for damaged in (
            text[:place] + text[place + 1 :],
            text[:place] + other + text[place + 1 :],
            text[:place],
        ):
            with pytest.raises(ConfigurationError, match="damaged"):
                AcidTableSerializer.decode(damaged)


@pytest.mark.parametrize(
    "payload", [b"", b"not deflated", zlib.compress(b"{}"), zlib.compress(b"[1]"), zlib.compress(b"{")]
)
def test_a_right_checksum_does_not_make_it_a_table(payload: bytes) -> None:
    """The content is checked as well, field by field."""
    with pytest.raises(ConfigurationError, match="damaged"):
        AcidTableSerializer.decode(text_of(payload))


@pytest.mark.thorough
def test_a_text_that_unpacks_to_very_much_is_refused() -> None:
    """A megabyte of packed zeros would otherwise take a gigabyte of the worker."""
    with pytest.raises(ConfigurationError, match=r"damaged table descriptor .* bytes"):
        AcidTableSerializer.decode(text_of(zlib.compress(bytes(200 << 20))))
