"""Two tables, one transaction: money moves between accounts, and the journal always records it.

    python -m examples.two_tables [METASTORE_URI]

The example shows a transfer that commits, and one that fails between its two tables and so changes neither.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from examples.local import PrintLoss, create_table, metastore_address
from mutation_api import (
    MutatorClient,
    MutatorClientBuilder,
    Transaction,
    apply_changes,
    local_spark_session,
    read_table,
)

ACCOUNTS = "default.accounts"
JOURNAL = "default.journal"
OPENING_BALANCE = 1000
NUM_ACCOUNTS = 10


class BankClosed(Exception):
    """A failure in the middle of a transfer."""


def main(arguments: Sequence[str]) -> int:
    """Open accounts, transfer, fail to transfer, and show that the sum never changed."""
    with metastore_address(arguments) as uri, local_spark_session() as spark:
        create_table(uri, ACCOUNTS, "id bigint, balance bigint", "", "id", 2)
        create_table(uri, JOURNAL, "source bigint, target bigint, amount bigint", "day string", "source", 2)
        builder = MutatorClientBuilder().metastore(uri).lock_failure_listener(PrintLoss())
        builder.add_sink_table("default.accounts")
        builder.add_sink_table("default.journal", create_partitions=True)
        with builder.build() as client:
            open_accounts(client, spark)
            transfer(client, spark, source=1, target=2, amount=250)
            with contextlib.suppress(BankClosed):
                transfer(client, spark, source=3, target=4, amount=999, fail=True)
            return show(client, spark)


def open_accounts(client: MutatorClient, spark: SparkSession) -> None:
    """Insert the accounts."""
    with client.new_transaction() as transaction:
        accounts = spark.range(NUM_ACCOUNTS).withColumn("balance", sf.lit(OPENING_BALANCE))
        print(apply_changes(transaction, ACCOUNTS, accounts.withColumn("operation", sf.lit("insert"))))


def transfer(
    client: MutatorClient, spark: SparkSession, *, source: int, target: int, amount: int, fail: bool = False
) -> None:
    """Take from one account, give to another, and record it: three changes in two tables, one transaction."""
    with client.new_transaction() as transaction:
        print(apply_changes(transaction, ACCOUNTS, _new_balances(spark, transaction, source, target, amount)))
        if fail:
            raise BankClosed
        entry = spark.sql(f"SELECT {source}L source, {target}L target, {amount}L amount, '2024-08-06' day")
        print(apply_changes(transaction, JOURNAL, entry.withColumn("operation", sf.lit("insert"))))


def _new_balances(
    spark: SparkSession, transaction: Transaction, source: int, target: int, amount: int
) -> DataFrame:
    step = sf.when(sf.col("id") == source, -amount).otherwise(amount)
    rows = read_table(transaction, ACCOUNTS, spark=spark).where(sf.col("id").isin(source, target))
    changed = rows.withColumn("balance", sf.col("balance") + step)
    return changed.withColumn("operation", sf.lit("update"))


def show(client: MutatorClient, spark: SparkSession) -> int:
    """Print both tables. Return 0 if accounts and journal agree."""
    with client.new_transaction() as transaction:
        accounts = read_table(transaction, ACCOUNTS, spark=spark).drop("ROW__ID").orderBy("id")
        journal = read_table(transaction, JOURNAL, spark=spark).drop("ROW__ID")
        balances = {row["id"]: row["balance"] for row in accounts.collect()}
        entries = [(row["source"], row["target"], row["amount"]) for row in journal.collect()]
    print(f"balances {balances}\njournal {entries}")
    expected = dict.fromkeys(range(NUM_ACCOUNTS), OPENING_BALANCE)
    for source, target, amount in entries:
        expected[source] -= amount
        expected[target] += amount
    return 0 if balances == expected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
