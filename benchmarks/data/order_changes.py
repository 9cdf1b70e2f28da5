"""Changes of orders at a steady rate, as Debezium's messages or as rows, and what they leave of a table.

The table's rows are numbered from 1, and row ``i`` has the total ``i % 100000`` cents. Of ten changes seven
update a row, two insert a new one, and one deletes a row; which rows, is random over the whole table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer
from numpy.typing import NDArray

CENTS = 100_000
PARTS_A_SECOND = 10
FLUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Totals:
    """Sums over a table: rows, ids and totals."""

    rows: int
    ids: int
    total: Decimal


class OrderChanges:
    """What happens to a table, and what is left of it.

    Args:
        rows: of the table before.
        most: changes that may follow at most.
        seed: another one makes other changes.
    """

    def __init__(self, rows: int, most: int, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._count = rows
        self._cents = np.arange(rows + most + 1, dtype=np.int64) % CENTS
        self._is_there = np.zeros(rows + most + 1, dtype=bool)
        self._is_there[1 : rows + 1] = True

    def messages(self, count: int) -> Iterator[tuple[str, str | None]]:
        """The next changes, on as many rows: key and message; a tombstone follows a delete."""
        updated, new, deleted = self._next(count)
        for ids, code, status in ((updated, "u", "paid"), (new, "c", "new")):
            for number, cents in zip(ids.tolist(), self._cents[ids].tolist(), strict=True):
                yield _key(number), _message(f'null,"after":{_row(number, cents, status)}', code)
        for number in deleted.tolist():
            yield _key(number), _message(f'{_row(number, 0, "paid")},"after":null', "d")
            yield _key(number), None

    def rows(self, count: int) -> pa.Table:
        """The next changes, on as many rows: ``op`` (U, I or D) and the columns of ``order_rows``."""
        parts = self._next(count)
        operations = np.repeat(np.array(["U", "I", "D"]), [len(ids) for ids in parts])
        ids = np.concatenate(parts)
        return order_rows(ids, self._cents[ids]).add_column(0, "op", pa.array(operations))

    def _next(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the rows that are updated, inserted and deleted next."""
        inserted = count // 5
        old = self._rng.choice(self._count, count - inserted, replace=False, shuffle=False) + 1
        updated, deleted = np.split(old, [len(old) * 7 // 8])
        new = np.arange(self._count + 1, self._count + inserted + 1)
        self._count += inserted
        self._cents[updated] = self._rng.integers(0, CENTS, len(updated))
        self._is_there[np.concatenate([updated, new])] = True
        self._is_there[deleted] = False
        return updated, new, deleted

    def totals(self) -> Totals:
        """What the table must sum to."""
        (ids,) = np.nonzero(self._is_there)
        return Totals(len(ids), int(ids.sum()), Decimal(int(self._cents[ids].sum())) / 100)


def order_rows(ids: NDArray[np.int64], cents: NDArray[np.int64]) -> pa.Table:
    """Rows of orders: ``id``, ``customer``, ``cents``, ``status``."""
    customers = pc.binary_join_element_wise("customer", pc.cast(pa.array(ids % 9973), pa.string()), " ")
    status = pa.array(np.where(cents % 2, "paid", "new"))
    return pa.table({"id": ids, "customer": customers, "cents": cents, "status": status})


def send(servers: str, topic: str, rows: int, a_second: int, seconds: float, said: Any) -> None:
    """Write changes to a topic at a steady rate; in a process of its own.

    Args:
        servers: Kafka's brokers.
        topic: gets the messages.
        rows: of the table before.
        a_second: changes.
        seconds: how long.
        said: a pipe's end that is told, in the end, the number, the seconds that it took, and the totals.
    """
    changes = OrderChanges(rows, round(a_second * seconds))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "log_level": 0})
    began, sent = time.monotonic(), 0
    part = a_second // PARTS_A_SECOND
    for number in range(round(seconds * PARTS_A_SECOND)):
        time.sleep(max(0.0, began + number / PARTS_A_SECOND - time.monotonic()))
        for key, message in changes.messages(part):
            producer.produce(topic, message, key)
        producer.poll(0)
        sent += part
    if producer.flush(FLUSH_SECONDS):
        raise RuntimeError("Kafka did not take all messages")
    said.send((sent, time.monotonic() - began, changes.totals()))


def _key(number: int) -> str:
    return f'{{"id":{number}}}'


def _row(number: int, cents: int, status: str) -> str:
    return (
        f'{{"id":{number},"customer":"customer {number % 9973}","total":"{cents // 100}.{cents % 100:02}",'
        f'"status":"{status}"}}'
    )


def _message(images: str, code: str) -> str:
    return (
        f'{{"before":{images},"source":{{"connector":"mysql","name":"erp","db":"shop","table":"orders"}},'
        f'"op":"{code}","ts_ms":{time.time_ns() // 1_000_000}}}'
    )
