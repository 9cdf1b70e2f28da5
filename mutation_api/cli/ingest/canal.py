"""``hive-mutate ingest canal``: flat JSON messages of Canal or TiCDC.

Files contain one message per line, as a Kafka consumer prints them. Tables are named database.table:

  hive-mutate ingest canal --files /data/canal --table shop.orders=sales.orders

Messages can also be read from Kafka:

  hive-mutate ingest canal --kafka broker:9092 --topic canal --table shop.orders=sales.orders

Operations are ordered by the numbers in the file names, then by line. The keys are the ones named in the
messages. --positions message orders by the messages' id, which starts again when Canal's server is restarted.
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.messages.canal import CanalSource
from mutation_api.cli.ingest.log_arguments import add_log_arguments, log_from
from mutation_api.cli.ingest.log_arguments import tables_from as tables_from  # offered to the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    add_log_arguments(parser)


def source_from(arguments: argparse.Namespace) -> CanalSource:
    """Return the log that the arguments describe."""
    return log_from(arguments, CanalSource)
