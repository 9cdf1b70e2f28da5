"""``hive-mutate ingest debezium``: the messages of Debezium's connectors.

Files contain one message per line, as a Kafka consumer prints them, preferably with their keys
(print.key=true, or kcat -J). Tables are named database.table, or schema.table for PostgreSQL and others that
have schemas:

  hive-mutate ingest debezium --files /data/orders --table shop.orders=sales.orders

Messages can also be read from Kafka, with one topic per table or one for all:

  hive-mutate ingest debezium --kafka broker:9092 --topic erp.shop.orders --table shop.orders=sales.orders

Messages of topics may be in Avro if their schemas are in a registry (Confluent's, or one with its interface):

  --schema-registry https://reader@registry.example:8081

Messages in Avro, or with a schema (schemas.enable=true), state how values are written. Without a schema,
describe decimals, bytes, and times that are numbers, either with the settings of the connector or per column:

  --decimals string --column-type shop.orders.placed=io.debezium.time.MicroTimestamp

Messages flattened by ExtractNewRecordState (after.state.only in Confluent Cloud) are read with --flattened.
Deletes require __deleted (delete.tombstone.handling.mode=rewrite), or the messages' keys.
"""

from __future__ import annotations

import argparse
import functools

from mutation_api.cdc.messages.debezium import DebeziumSource
from mutation_api.cdc.messages.debezium_flat import FlattenedMessages
from mutation_api.cdc.messages.debezium_values import (
    BINARY_MODES,
    DECIMAL_MODES,
    SEMANTIC_TYPES,
    TIME_MODES,
    DebeziumValues,
)
from mutation_api.cli.ingest.log_arguments import add_log_arguments, add_source_schema_argument, log_from
from mutation_api.cli.ingest.log_arguments import tables_from as tables_from  # offered to the command
from mutation_api.cli.parsers import add_repeatable
from mutation_api.errors import ConfigurationError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this kind of source."""
    add_log_arguments(parser, may_be_avro=True)
    add_source_schema_argument(parser, "the schemas of new messages have")
    values = parser.add_argument_group("how values are written, if messages have no schema")
    values.add_argument(
        "--decimals",
        choices=DECIMAL_MODES,
        help="value of the connector's decimal.handling.mode; numeric if it is precise and its converter has "
        "decimal.format=NUMERIC",
    )
    values.add_argument(
        "--binary", choices=BINARY_MODES, help="value of the connector's binary.handling.mode"
    )
    values.add_argument(
        "--times",
        choices=tuple(TIME_MODES),
        help="value of the connector's time.precision.mode, unless it is an adaptive one",
    )
    add_repeatable(
        values,
        "--column-type",
        "NAME.COLUMN=TYPE",
        f"semantic type of a column, which overrides the other options: {', '.join(SEMANTIC_TYPES)} "
        "(repeatable)",
        type=_column_type,
    )
    flat = parser.add_argument_group("flattened messages, as ExtractNewRecordState writes them")
    flat.add_argument(
        "--flattened",
        nargs="?",
        const="",
        metavar="NAME",
        help="read flattened messages. The table is named by the fields __table and __schema or __db, by "
        "the message's schema, by the topic, or it is the only --table; with NAME, messages without "
        "__table are rows of that table (default: read messages as whole envelopes)",
    )
    flat.add_argument(
        "--add-fields-prefix",
        metavar="TEXT",
        help=f"value of the transformation's add.fields.prefix (default: {FlattenedMessages.prefix})",
    )
    values.add_argument(
        "--unavailable-value",
        default=DebeziumValues.placeholder,
        metavar="TEXT",
        help="value of the connector's unavailable.value.placeholder (default: %(default)s)",
    )


def source_from(arguments: argparse.Namespace) -> DebeziumSource:
    """Return the log that the arguments describe."""
    values = DebeziumValues(
        decimals=arguments.decimals,
        binary=arguments.binary,
        times=arguments.times,
        column_types=dict(arguments.column_type),
        placeholder=arguments.unavailable_value,
    )
    flattened = _flattened_from(arguments)
    return log_from(arguments, functools.partial(DebeziumSource, values=values, flattened=flattened))


def _flattened_from(arguments: argparse.Namespace) -> FlattenedMessages | None:
    if arguments.flattened is None:
        if arguments.add_fields_prefix is not None:
            raise ConfigurationError("--add-fields-prefix requires --flattened")
        return None
    given = {} if arguments.add_fields_prefix is None else {"prefix": arguments.add_fields_prefix}
    return FlattenedMessages(table=arguments.flattened or None, **given)


def _column_type(text: str) -> tuple[str, str]:
    name, separator, semantic = text.partition("=")
    if not separator or "." not in name or not semantic:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME.COLUMN=TYPE")
    return name, semantic
