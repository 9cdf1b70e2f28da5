"""Tables with rows of people, their histories, and Hive's cleaner at work."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from judges.process import in_rounds
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api import Hive
from mutation_api.storage.local import LocalStorage


class Died(BaseException):
    """The process is gone."""


def email(person: int) -> str:
    """A string that occurs nowhere else."""
    return f"person{person:05d}@people.example"


def cleaning(judge: HiveJudge, *, worker: bool = False) -> AbstractContextManager[None]:
    """Rounds of the cleaner, and of a worker, as the server's threads do them."""

    def work() -> None:
        with contextlib.suppress(HiveError):
            if worker:
                judge.worker()
            judge.cleaner()

    return in_rounds(work, 0.2)


@dataclass
class People:
    """Two tables: orders by day and bucket, keyed by a number, and contacts, keyed by a string."""

    judge: HiveJudge
    hive: Hive
    metastore: ThriftMetastoreClient
    database: str
    random: random.Random
    log: list[str] = field(default_factory=list)

    @property
    def orders(self) -> str:
        return f"{self.database}.orders"

    @property
    def contacts(self) -> str:
        return f"{self.database}.contacts"

    @property
    def columns(self) -> dict[str, str]:
        return {self.orders: "customer_id", self.contacts: "email"}

    def keys(self, people: Iterable[int]) -> pa.Table:
        """The rows of a file of people."""
        found = sorted(people)
        return pa.table({"customer_id": found, "email": [email(person) for person in found]})

    def create(self) -> None:
        buckets = "clustered by (customer_id) into 2 buckets"
        by_email = "clustered by (email) into 2 buckets" if self.judge.line == "2.3" else ""
        properties = "tblproperties ('transactional'='true', 'orc.compress'='NONE'"
        if self.judge.line == "2.3":
            properties += ", 'transactional_properties'='default'"
        self.judge.sql(
            f"create table {self.orders} (customer_id bigint, who string, pieces int) "
            f"partitioned by (day string) {buckets} stored as orc {properties})"
        )
        self.judge.sql(
            f"create table {self.contacts} (email string, name string) {by_email} stored as orc {properties})"
        )

    def order(self, day: str, *people: int) -> None:
        self.hive.table(self.orders).append(self.order_rows(day, *people), create_partitions=True)

    def order_rows(self, day: str, *people: int) -> pa.Table:
        return pa.table(
            {
                "customer_id": pa.array(people, pa.int64()),
                "who": [email(person) for person in people],
                "pieces": pa.array([self.random.randrange(9) for _ in people], pa.int32()),
                "day": [day] * len(people),
            }
        )

    def contact(self, *people: int) -> None:
        self.hive.table(self.contacts).append(self.contact_rows(*people))

    def contact_rows(self, *people: int) -> pa.Table:
        return pa.table({"email": [email(p) for p in people], "name": [f"n{p}" for p in people]})

    def rows(self) -> list[list[list[object]]]:
        """What Hive reads, with ROW__IDs."""
        return [sorted(self.judge.sql(f"select ROW__ID, * from {name}"), key=str) for name in self.columns]

    def others(self, people: set[int]) -> list[list[list[object]]]:
        """What Hive reads, without rows of some people."""
        orders, contacts = self.rows()
        emails = {email(person) for person in people}
        return [
            [row for row in orders if row[1] not in people],
            [row for row in contacts if row[1] not in emails],
        ]

    def root(self, name: str) -> Path:
        database, table = name.split(".")
        return Path(self.metastore.get_table(database, table).location.removeprefix("file:"))

    # ---- histories

    def step(self, people: list[int]) -> None:
        """Something that happens to such tables, with effects that stay in files."""
        some = self.random.sample(people, 3)
        day = self.random.choice("abc")
        step = self.random.choice(
            [
                self.changed,
                self.removed,
                self.crashed,
                self.aborted,
                self.compacted,
                self.ordered,
                self.ordered,
            ]
        )
        self.log.append(f"{step.__name__} {day} {some}")
        step(day, some)

    def ordered(self, day: str, people: list[int]) -> None:
        self.order(day, *people)
        self.contact(*people)

    def changed(self, day: str, people: list[int]) -> None:
        self.judge.sql(f"update {self.orders} set pieces = 99 where customer_id = {people[0]}")
        self.hive.table(self.contacts).update(set={"name": "'new'"}, where=f"email = '{email(people[1])}'")

    def removed(self, day: str, people: list[int]) -> None:
        self.hive.table(self.orders).delete(where=f"customer_id = {people[0]}")
        self.judge.sql(f"delete from {self.contacts} where email = '{email(people[1])}'")

    def crashed(self, day: str, people: list[int]) -> None:
        """A client that dies before the commit: its staged files stay."""
        tx = self.hive.transaction(self.orders, self.contacts, create_partitions=True).begin()
        tx.table(self.orders).append(self.order_rows(day, *people))
        tx.table(self.contacts).append(self.contact_rows(*people))
        if self.judge.line != "2.3":
            tx.table(self.orders).scan().to_arrow()  # writes them
            tx.table(self.contacts).scan().to_arrow()
        self.judge.time_out_transactions(0)
        kept = LocalStorage.delete_directory
        LocalStorage.delete_directory = lambda *_: None  # type: ignore[method-assign]
        try:
            tx.close()
        finally:
            LocalStorage.delete_directory = kept  # type: ignore[method-assign]

    def aborted(self, day: str, people: list[int]) -> None:
        """A client that dies between publishing and commit: its deltas stay."""
        kept = type(self.metastore).commit_txn

        def die(*_: object) -> None:
            raise Died

        type(self.metastore).commit_txn = die  # type: ignore[method-assign]
        abort, type(self.metastore).abort_txn = type(self.metastore).abort_txn, die  # type: ignore[method-assign]
        try:
            with (
                contextlib.suppress(Died),
                self.hive.transaction(self.orders, self.contacts, create_partitions=True) as tx,
            ):
                tx.table(self.orders).append(self.order_rows(day, *people))
                tx.table(self.contacts).append(self.contact_rows(*people))
        finally:
            type(self.metastore).commit_txn = kept  # type: ignore[method-assign]
            type(self.metastore).abort_txn = abort  # type: ignore[method-assign]
        self.judge.time_out_transactions(0)

    def compacted(self, day: str, people: list[int]) -> None:
        """A compaction after which nobody cleans up."""
        kind = self.random.choice(["minor", "major"])
        with contextlib.suppress(HiveError):
            self.judge.compact(self.contacts, kind, clean=False)
        with contextlib.suppress(HiveError):
            self.judge.compact(self.orders, kind, partition=f"day='{day}'", clean=False)
