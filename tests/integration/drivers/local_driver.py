"""A driver whose local engine is killed while it writes; run as a program by test_local_killed.

    python -m tests.integration.drivers.local_driver URI TABLE

It inserts many rows into TABLE (id bigint, msg string, ds string) by two threads, and kills itself when one
of them has written its share.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow as pa

from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.write import apply as apply_module
from mutation_api.write.apply import apply_arrow
from mutation_api.write.local_plan import LocalOptions
from mutation_api.write.writing_order import write_batch

ROWS = 60_000


def main(uri: str, full_name: str) -> None:
    """Begin, write in part, and die."""

    def write_and_die(*arguments: Any) -> None:
        write_batch(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    vars(apply_module)["write_batch"] = write_and_die
    changes = {
        "operation": ["insert"] * ROWS,
        "id": range(ROWS),
        "msg": ["new"] * ROWS,
        "ds": [f"p{number % 4}" for number in range(ROWS)],
    }
    client = MutatorClientBuilder().metastore(uri).add_sink_table(full_name, create_partitions=True).build()
    with client, client.new_transaction() as transaction:
        apply_arrow(transaction, full_name, pa.table(changes), local=LocalOptions(threads=2))


if __name__ == "__main__":
    main(*sys.argv[1:])
