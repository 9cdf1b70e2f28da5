"""Transfers between the accounts of two tables by merge; as a program it goes on until it is killed.

    python -m tests.integration.drivers.merging_driver METASTORE_URI USER SEED WRITE_LOCK TABLE TABLE

Each transfer changes both tables in one transaction. What it is about to do goes to the standard output, a
word a line.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from mutation_api import merge_into
from mutation_api.errors import TransactionAbortedError
from mutation_api.spark.local_spark_session import local_spark_session
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient

ACCOUNTS = range(10)
"""Their numbers, in each table."""

ACCOUNTS_MOVED = 3
"""Accounts in each table between which a transfer moves money."""

LOCK_TIMEOUT_SECONDS = 400
"""Transfers wait for each other where the server has no choice, and for the dead."""

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m"}


def client_of(uri: str, user: str, tables: Sequence[str], *, write_lock: str = "exclusive") -> MutatorClient:
    """A client with the tables as sinks; it is not connected yet."""
    builder = MutatorClientBuilder().metastore(uri).user(user).lock_timeout_seconds(LOCK_TIMEOUT_SECONDS)
    for table in tables:
        database, _, name = table.partition(".")
        builder.add_sink_table(database, name)
    return builder.write_lock(write_lock).build()


def transfer(
    spark: SparkSession,
    client: MutatorClient,
    tables: Sequence[str],
    rng: random.Random,
    say: Callable[[str], None] = lambda word: None,
) -> None:
    """Move random amounts between accounts of both tables; one that becomes empty is deleted, one that is
    missing is opened.
    """
    amounts = [rng.randrange(-40, 40) for _ in range(ACCOUNTS_MOVED * len(tables) - 1)]
    amounts.append(-sum(amounts))
    say("begin")
    with client.new_transaction() as transaction:
        for number, table in enumerate(tables):
            say("merge")
            moved = amounts[number * ACCOUNTS_MOVED : (number + 1) * ACCOUNTS_MOVED]
            source = pa.table({"id": rng.sample(ACCOUNTS, ACCOUNTS_MOVED), "amount": moved})
            merge = merge_into(transaction, table, source=spark.createDataFrame(source), on=["id"])
            merge.whenMatched("target.balance + source.amount = 0").delete()
            merge.whenMatched().update({"balance": "target.balance + source.amount"})
            merge.whenNotMatched("source.amount <> 0").insert({"id": "source.id", "balance": "source.amount"})
            merge.execute()
        say("commit")


def main(uri: str, user: str, seed: str, write_lock: str, *tables: str) -> None:
    """Make transfers for ever; one that loses against another writer is left."""
    rng = random.Random(seed)
    with (
        local_spark_session(user, master="local[1]", settings=SETTINGS) as spark,
        client_of(uri, user, tables, write_lock=write_lock) as client,
    ):
        while True:
            with contextlib.suppress(TransactionAbortedError):
                transfer(spark, client, tables, rng, lambda word: print(word, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
