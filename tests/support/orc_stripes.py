"""ORC files one of whose stripes has other streams, all else being as the streams are."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mutation_api.format.varint import varint
from mutation_api.orc.format.compression import Compression, original_chunks, unpacked
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_BLOOM_FILTER_UTF8,
    as_bytes,
    fields_of,
    numbers_in,
)
from mutation_api.orc.format.stripe_sections import parse_stripe_footer
from mutation_api.orc.format.tail import parse_tail
from tests.fuzz.damage import damaged_bytes, odd_number
from tests.support.orc_parts import message, parts_of, tree_of


def changed_stripe(random: random.Random, data: bytes, change: Callable[[list[Any]], list[Any]]) -> bytes:
    """A file one of whose stripes has other streams; all lengths and places are those of the new streams.

    Args:
        random: chooses the stripe.
        data: the file.
        change: from (stream's message, its bytes) of each stream, and (None, the rest of the footer) at last.
    """
    tail, parts = parse_tail(data), parts_of(data)
    if not tail.stripes:
        return damaged_bytes(random, data)
    chosen = random.randrange(len(tail.stripes))
    body = bytearray(data[:3])
    places = []
    for number, stripe in enumerate(tail.stripes):
        content = data[stripe.offset : stripe.end]
        lengths = [stripe.index_length, stripe.data_length, stripe.footer_length]
        if number == chosen:
            section = content[-stripe.footer_length :]
            footer = parse_stripe_footer(section, tail, stripe)
            plain = unpacked(section, tail.compression, tail.block_bytes)
            heads = [as_bytes(v) for f, v in fields_of(plain) if f == 1]
            streams = [(h, data[s.start : s.stop]) for h, s in zip(heads, footer.streams, strict=True)]
            rest = message((f, v) for f, v in tree_of(plain) if f != 1)
            *new, (_, rest) = change([*streams, (None, rest)])
            index = sum(dict(tree_of(head)).get(1, 0) in (6, 7, 8) for head, _ in new)
            named = [(1, message([*((f, v) for f, v in tree_of(h) if f != 3), (3, len(t))])) for h, t in new]
            end = parts.packed(message(named) + rest)
            lengths = [sum(len(t) for _, t in new[:index]), sum(len(t) for _, t in new[index:]), len(end)]
            content = b"".join(text for _, text in new) + end
        places.append((len(body), *lengths))
        body += content
    numbers = iter(places)
    tree = []
    for field, value in tree_of(parts.footer):
        if field == 3:
            place = dict(zip((1, 2, 3, 4), next(numbers), strict=True))
            value = message((f, place.get(f, v)) for f, v in tree_of(as_bytes(value)))
        elif field == 2 and isinstance(value, int):  # bytes of the content
            value += len(body) - tail.stripes[-1].end
        tree.append((field, value))
    parts.body, parts.footer = bytes(body), message(tree)
    return parts.joined()


def damaged_row_index(random: random.Random, data: bytes) -> bytes:
    """One number of the position of one group of rows."""
    tail = parse_tail(data)

    def change(streams: list[Any]) -> list[Any]:
        indexes = [at for at, (head, _) in enumerate(streams[:-1]) if dict(tree_of(head)).get(1, 0) == 6]
        if not indexes:
            return streams
        at = random.choice(indexes)
        head, packed = streams[at]
        entries = tree_of(unpacked(packed, tail.compression, tail.block_bytes))
        group = random.randrange(len(entries))
        fields = dict(tree_of(as_bytes(entries[group][1])))
        positions = numbers_in(as_bytes(fields.get(1, b"")))
        if positions:
            number = random.randrange(len(positions))
            positions[number] = odd_number(random, positions[number])
        fields[1] = b"".join(map(varint, positions))
        entries[group] = (1, message(fields.items()))
        changed = message(entries)
        if tail.compression is not Compression.NONE:
            changed = original_chunks(changed, tail.block_bytes)
        return [*streams[:at], (head, changed), *streams[at + 1 :]]

    return changed_stripe(random, data, change)


def bloom_filter_bits(data: bytes) -> list[tuple[int, int]]:
    """The places of the bits of each Bloom filter in an uncompressed file."""
    tail, found = parse_tail(data), []
    for stripe in tail.stripes:
        footer = parse_stripe_footer(data[stripe.end - stripe.footer_length : stripe.end], tail, stripe)
        for stream in footer.streams:
            if stream.kind == STREAM_KIND_BLOOM_FILTER_UTF8:
                for _, each in fields_of(data[stream.start : stream.stop]):
                    for _, bits in fields_of(as_bytes(each)):
                        if isinstance(bits, bytes | memoryview):
                            at = data.index(bytes(bits), stream.start, stream.stop)
                            found.append((at, at + len(bits)))
    return found
