"""Change sources: logs of operations as tools for change data capture write them, and what applies them.

:func:`ingest` brings tables up to the end of a source, exactly once. A source is a :class:`ChangeSource`:

===================  =========================  ===============================================
source               what tells the log         what it is
===================  =========================  ===============================================
``CanalSource``      ``files``, ``name``        flat messages of Canal or TiCDC
``CollectorSource``  ``files``, ``name``        raw files of the binlog collector, of one table
``DebeziumSource``   ``files``, ``name``        messages of Debezium's connectors
``MaxwellSource``    ``files``, ``name``        messages of Maxwell's daemon
``MySqlSource``      ``address``, ``database``  a MySQL or MariaDB server
``TungstenSource``   ``staging``, ``service``   staging files of Tungsten Replicator
===================  =========================  ===============================================

What tells the log comes first; all else is given by name. MySqlSource and MySqlAddress need the packages of
``hive-mutation-api[mysql]``, so they are imported when they are asked for.
"""

import importlib
import typing

from mutation_api.inputs.collector.collector_source import CollectorSource
from mutation_api.inputs.ingest import Following, ingest
from mutation_api.inputs.ingest_report import IngestedTable, IngestReport
from mutation_api.inputs.messages.canal import CanalSource
from mutation_api.inputs.messages.debezium import DebeziumSource
from mutation_api.inputs.messages.debezium_values import DebeziumValues
from mutation_api.inputs.messages.log_options import LogOptions, Positions
from mutation_api.inputs.messages.maxwell import MaxwellSource
from mutation_api.inputs.reduce import Contradictions, ReducedLog, reduce_operations, reduced_log
from mutation_api.inputs.separated_text import SeparatedText
from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    Position,
    SourceTable,
    TableOperations,
)
from mutation_api.inputs.tungsten.staging_records import HEADER_DEFAULT, HEADER_WITHOUT_KEY, HeaderField
from mutation_api.inputs.tungsten.tungsten_source import TungstenSource
from mutation_api.inputs.watermark import WATERMARK_TABLE_NAME, Watermark, Watermarks
from mutation_api.types.text_values import BinaryText

if typing.TYPE_CHECKING:
    from mutation_api.inputs.mysql.mysql_source import MySqlSource
    from mutation_api.inputs.mysql.server import MySqlAddress
else:
    _MODULES = {
        "MySqlAddress": "mutation_api.inputs.mysql.server",
        "MySqlSource": "mutation_api.inputs.mysql.mysql_source",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)


__all__ = [
    "HEADER_DEFAULT",
    "HEADER_WITHOUT_KEY",
    "OPERATION",
    "POSITION",
    "WATERMARK_TABLE_NAME",
    "Batch",
    "BinaryText",
    "CanalSource",
    "ChangeSource",
    "CollectorSource",
    "Contradictions",
    "DebeziumSource",
    "DebeziumValues",
    "Following",
    "HeaderField",
    "IngestReport",
    "IngestedTable",
    "LogOptions",
    "MaxwellSource",
    "MySqlAddress",
    "MySqlSource",
    "Position",
    "Positions",
    "ReducedLog",
    "SeparatedText",
    "SourceTable",
    "TableOperations",
    "TungstenSource",
    "Watermark",
    "Watermarks",
    "ingest",
    "reduce_operations",
    "reduced_log",
]
