"""Messages of a real connector of Debezium, each in JSON and in Avro by the converters of Kafka Connect.

``tests/golden/debezium/README.md`` says how they were recorded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "golden" / "debezium"


@dataclass(frozen=True)
class RecordedPart:
    """A key or value: its JSON with the schema; its schema and value in Avro."""

    json: str
    schema: str
    body: bytes

    def in_avro(self, register: Callable[[str], int]) -> bytes:
        """As a message; ``register`` gives the number of a schema."""
        return b"\0" + register(self.schema).to_bytes(4) + self.body


@dataclass(frozen=True)
class Recorded:
    """A message; a tombstone has no value."""

    topic: str
    key: RecordedPart | None
    value: RecordedPart | None


def recorded_messages(name: str) -> list[Recorded]:
    """The messages of a file, in their order."""
    found = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))

    def part(given: list[int | str] | None) -> RecordedPart | None:
        if given is None:
            return None
        json_schema, payload, avro_schema, body = given
        text = f'{{"schema":{found["json_schemas"][json_schema]},"payload":{payload}}}'
        return RecordedPart(text, found["avro_schemas"][avro_schema], base64.b64decode(str(body)))

    return [Recorded(topic, part(key), part(value)) for topic, key, value in found["messages"]]
