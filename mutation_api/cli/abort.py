"""``hive-mutate abort``: abort transactions whose client will not finish them."""

from __future__ import annotations

import argparse

from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say
from mutation_api.upkeep.sweep import abort_transactions

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "txn",
        metavar="TXN",
        type=int,
        nargs="+",
        help="id of a transaction to abort, as listed by hive-mutate show txns (repeatable)",
    )
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Abort each transaction. Accept one that is aborted already; refuse a committed or unknown one."""
    with metastore_from(arguments) as metastore:
        for txn_id in abort_transactions(metastore, arguments.txn):
            say(f"transaction {txn_id} is aborted")
    return 0
