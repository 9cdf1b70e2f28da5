"""Atomic change sets over Hive ACID tables.

The names below are the front door; the Spark job is in :mod:`mutation_api.spark`, which needs pyspark.
"""

from mutation_api.acid.row_id import RecordIdentifier
from mutation_api.bucketing.bucket_resolver import BucketIdResolver
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.listener import LockFailureListener
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.client.snapshot import Snapshot
from mutation_api.client.transaction import Transaction
from mutation_api.client.transaction_state import TransactionState
from mutation_api.client.transaction_summary import TableSummary, TransactionSummary
from mutation_api.commit.manifest import DeltaManifest
from mutation_api.errors import MutationError
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.table.writer_options import WriterOptions
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.doctor import DoctorReport, TableReport, examine
from mutation_api.worker.coordinator import MutatorCoordinator

__all__ = [
    "AcidTable",
    "AcidTableSerializer",
    "BucketIdResolver",
    "DeltaManifest",
    "DoctorReport",
    "LockFailureListener",
    "MutationError",
    "MutatorClient",
    "MutatorClientBuilder",
    "MutatorCoordinator",
    "RecordIdentifier",
    "Snapshot",
    "TableReport",
    "TableSummary",
    "Transaction",
    "TransactionState",
    "TransactionSummary",
    "WriterOptions",
    "create_acid_table",
    "examine",
]
