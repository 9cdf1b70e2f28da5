"""The pages of the Python API: the public names by task, and the types that stand in their signatures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("mutation_api", "mutation_api.cdc", "mutation_api.upkeep", "metastore_client")
_IMPORT = re.compile(r"^from (\.[\w.]*) import (\w+) as \2$", re.MULTILINE)
_ELSEWHERE = {".errors", "._version"}
"""The page of errors has the errors of both packages."""
_NO_CONSTRUCTOR, _ALL_MEMBERS = "-", "="
_NOT_EXPORTED = "The names above accept or return these types. The packages do not export them."


class Shown(NamedTuple):
    """A full name on a page, and its mark or ''."""

    name: str
    mark: str

    @property
    def last(self) -> str:
        """Its last part."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class ApiPage:
    """A page of names.

    Attributes:
        title: the task.
        text: what the page begins with.
        names: by package, what users import from it, in the order of the page. A dash follows a class whose
            objects calls return: the page shows no constructor. An equals sign follows a result and an
            enumeration: the page shows all members instead, including those without a docstring.
        types: the same for types in signatures that the packages do not export.
    """

    title: str
    text: str
    names: Mapping[str, str]
    types: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The page's file."""
        return f"reference/api/{self.title.lower()}.md"

    @property
    def exported(self) -> list[Shown]:
        """The names that users import."""
        return list(_shown(self.names))

    @property
    def of_signatures(self) -> list[Shown]:
        """The types that stand in signatures alone."""
        return list(_shown(self.types))


def _shown(names: Mapping[str, str]) -> Iterator[Shown]:
    for package, words in names.items():
        for word in words.split():
            name = word.rstrip(_NO_CONSTRUCTOR + _ALL_MEMBERS)
            yield Shown(f"{package}.{name}", mark=word.removeprefix(name))


PAGES = (
    ApiPage(
        "Connect",
        "Open a metastore, log in to it, and set up storage. [Connecting](../../connecting.md) and "
        "[Storage](../../storage.md) explain the settings.",
        {
            "mutation_api": "connect Hive- TableHandle- configure_storage HadoopSettings Location",
            "metastore_client": (
                "open_client MetastoreConfig Address UriSelection= KerberosLogin PlainLogin TokenLogin "
                "DelegationToken Protection= TlsConfig HttpConfig MetastoreClient ThriftMetastoreClient- "
                "Capabilities"
            ),
        },
        {
            "mutation_api.transaction": "builder.MetastoreTarget",
            "mutation_api": "storage.location.LocationLike upkeep.alter_acid_table.SchemaMode",
            "metastore_client": "transport.security.SaslLogin valid_ids.CountRows",
        },
    ),
    ApiPage(
        "Write",
        "Append, update and delete rows in a transaction, as Arrow data or with Spark. [Append "
        "rows](../../guides/append.md) and [Change rows](../../guides/change-rows.md) are the guides. The "
        "names from `MutatorClientBuilder` on are those of Hive's Mutation API.",
        {
            "mutation_api": (
                "HiveTransaction- HiveTable- Attempts LocalOptions WriterOptions ApplySummary= "
                "TransactionSummary= TableSummary= StepSummary= OverwriteReport= LockFailureListener "
                "apply_changes HistoryReport= delete_where update_where overwrite track local_spark_session "
                "translated_worker_errors MutatorClientBuilder MutatorClient- Transaction- TransactionState= "
                "MutatorCoordinator BucketIdResolver AcidTableSerializer DeltaManifest="
            ),
        },
        {
            "mutation_api.write": "coordinator.Record constraint_checks.PartitionValues",
        },
    ),
    ApiPage(
        "Merge",
        "Upsert rows by key, and compare states of a table. [Merge by key](../../guides/merge.md) is "
        "the guide. `HiveTable.merge` and `TableHandle.merge` begin merges of Arrow data, "
        "`merge_into` one with Spark.",
        {
            "mutation_api": (
                "LocalMerge- SeparateMerge- merge_into MergeInto- first_by FirstBy= MergeReport= "
                "MergeCounts= diff"
            ),
        },
        {
            "mutation_api.merge": (
                "clauses.MergeOptionsDict local_merge.Condition local_merge.Values "
                "spark_expressions.Expression "
                "spark_merge.WhenMatched- spark_merge.WhenNotMatched- spark_merge.WhenNotMatchedBySource- "
                "merge_report.Share= preview.Preview= preview.SampleRow= preview.ForeignLock="
            ),
            "mutation_api.write": "forecast.GroupCount=",
        },
    ),
    ApiPage(
        "Read",
        "Read the rows of a snapshot, also of a past one. [Read tables](../../guides/read.md) is the guide.",
        {
            "mutation_api": (
                "HiveSnapshot- SnapshotTable- TableScan- LazyScan- ScanExplanation= TimestampForm= "
                "BinaryEncoding= export_rows read_table open_table open_directory TableView- Snapshot- "
                "PastSnapshot- SnapshotView"
            ),
        },
        {
            "mutation_api.transaction": "past_snapshot.AsOf",
            "mutation_api.read": "table_view.PartitionCondition table_scan.PartitionRows",
        },
    ),
    ApiPage(
        "Changes",
        "Get what changed in tables since a position. [Change feed](../../change-feed.md) is the guide.",
        {
            "mutation_api": (
                "ChangeFeed- ChangedTransaction- ChangedTable- table_changes changes_position "
                "HiveChangesSource"
            ),
            "mutation_api.cdc": "ChangeTopics SentChanges=",
        },
        {
            "mutation_api.transaction": "feed_position.Since hold.HoldTime",
            "mutation_api.hive": "feed_rules.FeedKeys feed_rules.Images",
        },
    ),
    ApiPage(
        "Export",
        "Keep copies of tables in Delta Lake or Iceberg in step. [Export](../../export.md) is the guide.",
        {
            "mutation_api.cdc": (
                "Export ExportReport= ExportedTable= VerifiedExport= VerifiedTable= ComparedPartition= "
                "CutoverReport="
            )
        },
    ),
    ApiPage(
        "Ingest",
        "Apply the log of a database to tables, exactly once. [Ingest a database's "
        "log](../../guides/ingest.md) and [Kafka](../../kafka.md) are the guides.",
        {
            "mutation_api.cdc": (
                "ingest TableMapping HistoryMapping ChangesMapping IngestReport= IngestedTable= "
                "IngestedHistory= IngestedChanges= Contradictions= MySqlSource MySqlAddress "
                "DebeziumSource DebeziumValues FlattenedMessages MaxwellSource CanalSource KafkaTopics "
                "LogOptions NewSnapshot= PositionSource= CollectorSource TungstenSource DelimitedText "
                "HeaderField= HEADER_DEFAULT HEADER_WITHOUT_KEY list_watermarks Watermark= Watermarks= "
                "WATERMARK_TABLE_NAME latest_operations open_log_reduction LogReduction= read_source "
                "ChangeSource LocalChangeSource SourceTable Batch LocalBatch TableOperations LocalOperations "
                "Position Stop OPERATION POSITION CHANGED_AT"
            ),
        },
        {
            "mutation_api.cdc": (
                "messages.message_source.MessageSource source_url.LocationsLike engine.AnySource "
                "mappings.AnyMapping"
            ),
        },
    ),
    ApiPage(
        "Streams",
        "Write the batches of a streaming query of Spark exactly once. [Streams](../../streams.md) is the "
        "guide.",
        {
            "mutation_api.cdc": (
                "hive_sink HiveSink- BatchReport= BatchAction AppendRows ApplyChanges MergeRows HistoryRows "
                "OverwriteRows ReduceLog"
            ),
        },
        {
            "mutation_api.cdc": "batch_actions.Rows batch_actions.BatchSummary",
        },
    ),
    ApiPage(
        "Update",
        "Follow a table of a relational database without reading its log. [Incremental "
        "update](../../incremental-update.md) is the guide.",
        {
            "mutation_api": (""),
            "mutation_api.cdc": (
                "enable_update EnableReport= extract_update ExtractReport= update_status UpdateStatus= "
                "status_text status_page repair_update disable_update DisableReport= CaptureMethod="
            ),
        },
        {
            "mutation_api.cdc.update": (
                "settings.UpdateSettings= progress_mark.ProgressMark= progress_mark.Run= status.Waiting= "
                "database.SourceObject="
            ),
        },
    ),
    ApiPage(
        "Upkeep",
        "Create and alter tables, watch them, and repair them. [Change the columns of a "
        "table](../../guides/alter-table.md), [Watch and repair](../../operations.md) and "
        "[Replication](../../replication.md) are the guides; [Erasure](../../erasure.md) explains `erase`.",
        {
            "mutation_api": ("create_acid_table create_table list_staged erase"),
            "mutation_api.upkeep": (
                "alter_acid_table AlteredTable= added_columns "
                "compact_table CompactReport= CompactedPartition= CompactionThreshold compact_next "
                "compact_partition CompactedDirectory= restore_table RestoredPartition= delta_sizes "
                "DeltaSizes= FileSizes= doctor DoctorReport= TableReport= verify_table verify_view "
                "VerifyReport= Finding= Severity= VerifyProgress= table_history TableHistory= "
                "HistoryEntry= EventCounts= explain_transaction TransactionExplanation= sweep SweptTable= "
                "SweptSize= abort_transactions replication_of ReplicationReport= ReplicatedTable= "
                "ReplicationRole= ReplicationRule= ErasureReport= ErasedTable= Obstacle= "
                "is_erasure_signed_by"
            ),
        },
        {
            "mutation_api.upkeep": (
                "verify.verify.Progress verify.finding.Rule= verify.finding.IdState "
                "history.RewrittenDirectory= explain.HeldUp= explain.TransactionTable= "
                "erasure.table_search.TableSearch="
            ),
            "mutation_api.transaction": "manifest_checks.StagedOutput= staging.Abandoned=",
        },
    ),
    ApiPage(
        "Types",
        "Types of columns, descriptions of tables, ROW__IDs, and the values that a metastore takes and "
        "returns.",
        {
            "mutation_api": (
                "parse_hive_type arrow_type AcidTable AcidColumn CheckConstraint TableRole= AcidVersion= "
                "Operation= RecordIdentifier ROW_ID_COLUMN"
            ),
            "metastore_client": (
                "TableInfo ColumnInfo PartitionInfo ConstraintInfo ConstraintKind= ColumnStatistics "
                "CompactionInfo CompactionType= LockRequest LockComponent LockResponse LockInfo LockState= "
                "LockType= LockLevel= DataOperationType= HeartbeatResult= OpenTxns TxnInfo TxnState= "
                "WriteNotification ValidTxnList ValidWriteIdList ValidIdList RangeValidity="
            ),
        },
        {
            "mutation_api": "format.hive_type.HiveType-",
        },
    ),
    ApiPage(
        "Testing",
        "Test your own code: with a metastore in memory, or with a real one on this machine. Real ones "
        "need Java and the jars of pyspark, which the last names find.",
        {
            "metastore_client.testing": (
                "InMemoryMetastore HIVE_2_3 HIVE_3_1 HIVE_4_1 TXN_TIMEOUT_SECONDS_DEFAULT"
            ),
            "metastore_client": (
                "EmbeddedMetastore find_java spark_jars hive_class_path ADD_OPENS JavaNotFoundError"
            ),
        },
    ),
)


def public_names(package: str) -> list[str]:
    """Return the full names that a package exports, without its errors and its version."""
    text = ROOT.joinpath(*package.split("."), "__init__.pyi").read_text(encoding="utf-8")
    return [f"{package}.{name}" for module, name in _IMPORT.findall(text) if module not in _ELSEWHERE]


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield path and Markdown of each page."""
    yield "reference/api/index.md", _index()
    for page in PAGES:
        parts = [f"# {page.title}\n\n{page.text}", *map(_section, page.exported)]
        if page.types:
            parts.append(f"## Types in signatures\n\n{_NOT_EXPORTED}")
            parts += [
                _section(each, heading_level=3, show_root_full_path=False) for each in page.of_signatures
            ]
        yield page.path, "\n\n".join(parts) + "\n"


def _section(shown: Shown, **options: object) -> str:
    options |= {"toc_label": shown.last}
    if shown.mark:
        options |= {"merge_init_into_class": False, "show_if_no_docstring": shown.mark == _ALL_MEMBERS}
    lines = [f"      {option}: {json.dumps(value)}" for option, value in options.items()]
    return "\n".join([f"::: {shown.name}", "    options:", *lines])


def _index() -> str:
    lines = [
        "# Python\n",
        "Import names from `mutation_api`, `mutation_api.cdc`, `mutation_api.upkeep` and\n"
        "`metastore_client`, and for tests from `metastore_client.testing`. The heading of a name shows\n"
        "its package.\n",
        "| task | names |",
        "|---|---|",
    ]
    for page in PAGES:
        names = ", ".join(f"[`{each.last}`][{each.name}]" for each in page.exported)
        lines.append(f"| [{page.title}]({page.path.rpartition('/')[2]}) | {names} |")
    lines.append("| [Errors](../errors.md) | every error of both packages |")
    return "\n".join(lines) + "\n"
