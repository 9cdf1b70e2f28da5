"""``hive-mutate ingest maxwell``: the messages of Maxwell's daemon.

Files contain one message per line, as Maxwell's file producer writes them or a Kafka consumer prints them.
Tables are named database.table:

  hive-mutate ingest maxwell --files /data/maxwell --table shop.orders=sales.orders:id

Messages can also be read from Kafka:

  hive-mutate ingest maxwell --kafka broker:9092 --topic maxwell --table shop.orders=sales.orders:id

Configure Maxwell to write output_binlog_position and output_xoffset, which give the order, and
output_primary_key_columns, which gives the key. Rows of a bootstrap have no position: use --positions line.
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.messages.maxwell import MaxwellSource
from mutation_api.cli.ingest.log_arguments import add_log_arguments, log_from
from mutation_api.cli.ingest.log_arguments import tables_from as tables_from  # offered to the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    add_log_arguments(parser)


def source_from(arguments: argparse.Namespace) -> MaxwellSource:
    """Return the log that the arguments describe."""
    return log_from(arguments, MaxwellSource)
