"""A small Debezium for the demo: it reads MariaDB's binary log and writes each changed row to Kafka.

A message is an envelope with the row before and after the change. A tombstone follows a delete. The message's
key is the key of the row. The existing rows are sent first, as a snapshot.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import pymysql
from confluent_kafka import Producer
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from judges.kafka import Kafka
from judges.mysql import MariaDbJudge

REPLICA_ID = 4242
"""The connector's server id among the replicas of the server."""
SLEEP_SECONDS = 0.1
LONGEST_SECONDS = 60.0
Row = Mapping[str, Any]


class Connector:
    """A connector that follows one table in a separate thread.

    ``changes``: number of rows that were sent, including those of the snapshot. Each is one message, not
    counting tombstones.
    """

    def __init__(self, server: MariaDbJudge, kafka: Kafka, table: str, topic: str) -> None:
        """Take the snapshot of ``database.table``. Nobody may change the table meanwhile."""
        self._server, self._topic = server, topic
        self._database, self._table = table.split(".")
        self._producer: Producer = kafka.producer(linger_ms=5)
        self._file, self._offset = server.log_end()
        self.changes = 0
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connector", daemon=True)
        with server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {table} ORDER BY id")
            for row in cursor.fetchall():
                self._tell("r", None, row)
        self._producer.flush(LONGEST_SECONDS)

    def __enter__(self) -> Connector:
        """Start to follow the log."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop following the log."""
        self._stopped.set()
        self._thread.join()

    def wait_for(self, changes: int) -> None:
        """Wait until this many rows were sent and Kafka has them."""
        end = time.monotonic() + LONGEST_SECONDS
        while self.changes < changes:
            if self._failure is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"the connector sent {self.changes} of {changes} changes"
                ) from self._failure
            time.sleep(SLEEP_SECONDS)
        self._producer.flush(LONGEST_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._follow()
                self._producer.poll(0)
                time.sleep(SLEEP_SECONDS)
        except BaseException as error:
            self._failure = error
            raise

    def _follow(self) -> None:
        """Send what was committed since the last call."""
        stream = BinLogStreamReader(
            dict(self._server.connection_options()),
            REPLICA_ID,
            log_file=self._file,
            log_pos=self._offset,
            resume_stream=True,
            blocking=False,
            only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
            only_schemas=[self._database],
            only_tables=[self._table],
            enable_logging=False,
            pymysql_wrapper=_connect,
        )
        try:
            for event in stream:
                for row in event.rows:
                    self._tell_logged(event, row)
            self._file, self._offset = stream.log_file, stream.log_pos
        finally:
            stream.close()

    def _tell_logged(self, event: Any, row: Mapping[str, Row]) -> None:
        match event:
            case WriteRowsEvent():
                self._tell("c", None, row["values"])
            case DeleteRowsEvent():
                self._tell("d", row["values"], None)
            case _:
                self._tell("u", row["before_values"], row["after_values"])

    def _tell(self, operation: str, before: Row | None, after: Row | None) -> None:
        source = {"connector": "mariadb", "name": "erp", "db": self._database, "table": self._table}
        envelope = {
            "before": before,
            "after": after,
            "source": source,
            "op": operation,
            "ts_ms": time.time_ns() // 1_000_000,
        }
        row = after or before or {}
        key = json.dumps({"id": row["id"]})
        self._producer.produce(self._topic, json.dumps(envelope, default=str), key)
        if after is None:
            self._producer.produce(self._topic, None, key)
        self._producer.poll(0)
        self.changes += 1


def _connect(**options: Any) -> Any:
    if "db" in options:  # PyMySQL's old name of the option, which the library still uses
        options["database"] = options.pop("db")
    return pymysql.connect(**options)
