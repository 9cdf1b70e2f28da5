"""Field numbers in the messages of an ORC file that several modules read or write.

Source: orc_proto.proto.
"""

from __future__ import annotations

__all__ = [
    "FOOTER_CALENDAR",
    "FOOTER_METADATA",
    "FOOTER_STRIPE",
    "FOOTER_TYPE",
    "MAGIC",
    "METADATA_NAME",
    "METADATA_VALUE",
    "POSTSCRIPT_BLOCK_BYTES",
    "POSTSCRIPT_COMPRESSION",
    "POSTSCRIPT_FOOTER_LENGTH",
    "POSTSCRIPT_STATISTICS_LENGTH",
    "PROLEPTIC_GREGORIAN",
    "STREAM_COLUMN",
    "STREAM_KIND",
    "STREAM_KIND_BLOOM_FILTER_UTF8",
    "STREAM_KIND_DATA",
    "STREAM_KIND_DICTIONARY",
    "STREAM_KIND_LENGTH",
    "STREAM_KIND_PRESENT",
    "STREAM_KIND_ROW_INDEX",
    "STREAM_KIND_SECONDARY",
    "STREAM_LENGTH",
    "STRIPE_STREAM",
    "STRIPE_WRITER_ZONE",
    "TYPE_ATTRIBUTE",
    "TYPE_ATTRIBUTE_NAME",
    "TYPE_ATTRIBUTE_VALUE",
    "TYPE_KIND",
    "TYPE_KIND_CHAR",
]

MAGIC = b"ORC"
"""First bytes of a file; its postscript holds them too."""

POSTSCRIPT_FOOTER_LENGTH = 1
POSTSCRIPT_COMPRESSION = 2
POSTSCRIPT_BLOCK_BYTES = 3
POSTSCRIPT_STATISTICS_LENGTH = 5

FOOTER_STRIPE = 3
FOOTER_TYPE = 4
FOOTER_METADATA = 5
FOOTER_CALENDAR = 11

PROLEPTIC_GREGORIAN = 2
"""Value of FOOTER_CALENDAR."""

METADATA_NAME = 1
METADATA_VALUE = 2

STRIPE_STREAM = 1
STRIPE_WRITER_ZONE = 3
STREAM_KIND = 1
STREAM_KIND_PRESENT = 0
"""Value of STREAM_KIND: which values are not NULL; missing where all are."""
STREAM_KIND_DATA = 1
STREAM_KIND_LENGTH = 2
"""Value of STREAM_KIND: lengths of texts, lists and maps."""
STREAM_KIND_DICTIONARY = 3
"""Value of STREAM_KIND: the texts of a dictionary."""
STREAM_KIND_SECONDARY = 5
"""Value of STREAM_KIND: nanoseconds of timestamps, scales of decimals."""
STREAM_KIND_ROW_INDEX = 6
"""Value of STREAM_KIND: statistics of groups of rows, and where their values lie."""
STREAM_KIND_BLOOM_FILTER_UTF8 = 8
"""Value of STREAM_KIND: the last one."""
STREAM_COLUMN = 2
STREAM_LENGTH = 3

TYPE_KIND = 1
TYPE_KIND_CHAR = 17
"""Value of TYPE_KIND."""
TYPE_ATTRIBUTE = 7
TYPE_ATTRIBUTE_NAME = 1
TYPE_ATTRIBUTE_VALUE = 2
