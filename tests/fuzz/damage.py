"""Ways to damage bytes, messages of protocol buffers, texts and JSON. All by a seeded generator."""

from __future__ import annotations

import random
from typing import Any

from mutation_api.orc.format.protobuf import bytes_field, fields_of, number_field, raw_fields_of

_ODD = (0, 1, 2, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
_TEXTS = (
    "",
    "\0",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "é" * 300,
    "1e999",
    "-0",
    "NaN",
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1.5, -0.0, 1e308),
    *("", "x", "\0", "\ud800", "1970-13-40", "0000-00-00 00:00:00", "é" * 300, [], {}, [[]], {"": None}),
)


def odd_number(random: random.Random, number: int = 0) -> int:
    """A number that programs treat badly, or one near another."""
    near = (number + 1, max(0, number - 1), number * 2, number ^ (1 << random.randrange(20)))
    return random.choice(_ODD) if random.random() < 0.5 else random.choice(near) % 2**64


def damaged_bytes(random: random.Random, data: bytes) -> bytes:
    """Bits turned, or bytes replaced, lost, added, repeated or moved."""
    if not data:
        return random.randbytes(random.randrange(1, 9))
    start = random.randrange(len(data))
    stop = min(len(data), start + 1 + int(random.expovariate(0.2)))
    way = random.randrange(8)
    if way <= 2:
        turned = data[start] ^ 1 << random.randrange(8)
        return data[:start] + bytes([turned]) + data[start + 1 :]
    middle = (
        random.randbytes(stop - start),
        b"",
        data[start:stop] * random.choice((2, 3, 200)),
        bytes([random.choice((0, 0x7F, 0xFF))]) * (stop - start),
        data[start:stop][::-1],
    )[way - 3]
    if way == 4 and random.random() < 0.2:
        return data[:start]
    return data[:start] + middle + data[stop:]


def damaged_message(random: random.Random, text: bytes, depth: int = 0) -> bytes:
    """A message with one field changed, lost, doubled or moved, at any depth."""
    try:
        fields = list(raw_fields_of(text))
    except (ValueError, IndexError):
        fields = []
    if not fields:
        return damaged_bytes(random, text)
    at = random.randrange(len(fields))
    field, value, raw = fields[at]
    pieces = [each for _, _, each in fields]
    way = random.random()
    if way < 0.1:
        del pieces[at]
    elif way < 0.2:
        pieces[at:at] = [raw] * random.choice((1, 1, 1, 5, 3000))
    elif way < 0.25:
        random.shuffle(pieces)
    elif way < 0.3:
        pieces.append(number_field(random.randrange(1, 20), odd_number(random)))
    elif isinstance(value, int):
        pieces[at] = number_field(field, odd_number(random, value))
    elif raw[0] & 7 != 2 or not value:
        pieces[at] = bytes_field(field, damaged_bytes(random, value))
    elif depth < 5 and _is_message(value) and random.random() < 0.8:
        pieces[at] = bytes_field(field, damaged_message(random, value, depth + 1))
    else:
        pieces[at] = bytes_field(field, damaged_bytes(random, value))
    return b"".join(pieces)


def _is_message(text: bytes) -> bool:
    try:
        return all(0 < field < 10_000 for field, _ in fields_of(text))
    except (ValueError, IndexError):
        return False


def damaged_text(random: random.Random, text: str, marks: str = ",\"'\n\\{}[]:") -> bytes:
    """A text with letters changed, marks of its syntax added, or bytes that are no text."""
    if random.random() < 0.4:
        return damaged_bytes(random, text.encode())
    start = random.randrange(len(text) + 1)
    stop = min(len(text), start + random.choice((0, 0, 1, 5)))
    middle = random.choice((random.choice(marks), random.choice(_TEXTS), random.choice(marks) * 5000))
    return (text[:start] + middle + text[stop:]).encode()


def damaged_json(random: random.Random, value: Any) -> Any:
    """A value with one part replaced, lost or renamed, at any depth."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(sorted(value))
        rest = {key: each for key, each in value.items() if key != name}
        way = random.random()
        if way < 0.15:
            return rest
        if way < 0.25:
            return {**rest, name.upper(): value[name]}
        return {**value, name: damaged_json(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        if random.random() < 0.2:
            return value[:at] + value[at + 1 :]
        return [*value[:at], damaged_json(random, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and random.random() < 0.4:
        return damaged_text(random, value).decode(errors="replace")
    if isinstance(value, int) and random.random() < 0.4:
        return value + random.choice((-1, 1, 2**31, -(2**63)))
    return random.choice(_VALUES)


def nested(random: random.Random, opening: str = "[", closing: str = "]") -> str:
    """Brackets within brackets."""
    depth = random.choice((50, 2_000, 100_000))
    return opening * depth + closing * random.choice((0, depth))
