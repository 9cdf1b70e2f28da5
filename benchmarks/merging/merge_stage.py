"""The stage of the benchmarks that merge by key: metastore, Spark, prepared rows, peers and the judge."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.data.merge_data import CHECKSUMS, ChangeSets, write_base
from benchmarks.measuring.local_metastore import METASTORE, measured_metastore
from benchmarks.measuring.measure import Watch, tell
from benchmarks.merging.merge_tables import HiveTables
from benchmarks.peers import PeerProcess
from judges.hive.hive_judges import Hive23
from metastore_client import EmbeddedMetastore
from mutation_api import local_spark_session

OURS_KINDS = ("driver", "java", "python", METASTORE)
"""Kinds of processes that work for us."""

HIVE = "hive"
CORES = 2
DRIVER_MEMORY = "4g"

Content = tuple[int, ...]
"""Values of CHECKSUMS."""


@dataclass
class Stage:
    """What the cases of one number of rows share."""

    rows: int
    prepared: Path
    folder: Path
    spark: SparkSession
    metastore: EmbeddedMetastore
    tables: HiveTables
    kinds: dict[int, str]
    stack: contextlib.ExitStack
    settings: Mapping[str, str]
    _hive: Hive23 | None = None

    @classmethod
    @contextlib.contextmanager
    def opened(cls, work: Path, rows: int, more_settings: Mapping[str, str]) -> Iterator[Stage]:
        """Start metastore and Spark; the rows are written unless an earlier run left them in ``work``."""
        prepared = work / f"rows-{rows}"
        with contextlib.ExitStack() as stack:
            prepared.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=work)))
            base = prepared / "base"
            if not base.exists():
                tell(f"writing {rows:,} rows")
                write_base(rows, folder / "base")
                (folder / "base").rename(base)
            metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
            settings = {
                "spark.driver.memory": DRIVER_MEMORY,
                "spark.local.dir": str(folder / "spark"),
                **more_settings,
            }
            spark = stack.enter_context(local_spark_session(master=f"local[{CORES}]", settings=settings))
            tables = HiveTables(metastore, prepared, base)
            yield cls(rows, prepared, folder, spark, metastore, tables, kinds, stack, dict(more_settings))

    @property
    def base(self) -> str:
        """Parquet files of the table's first contents."""
        return str(self.prepared / "base")

    def watch(self) -> Watch:
        """Counters that know all processes by their kind."""
        return Watch(self.kinds)

    def change_sets(self, label: str, changes: int, rounds: int) -> ChangeSets:
        """Change sets, written."""
        made = ChangeSets(self.rows, max(1, changes), rounds, self.folder / f"changes {label}")
        made.write()
        return made

    def peer(self, module: str, kind: str, stack: contextlib.ExitStack) -> PeerProcess:
        """A peer's process, until the stack is left."""
        peer = stack.enter_context(PeerProcess(module))
        self.kinds[peer.pid] = kind
        return peer

    def new_folder(self, name: str) -> Path:
        """A folder's path that was not used before."""
        return next(
            path for number in itertools.count() if not (path := self.folder / f"{name}-{number}").exists()
        )

    def hive(self) -> Hive23:
        """Real Hive on the same metastore, from now on."""
        if self._hive is None:
            configuration = {"hive.metastore.uris": self.metastore.uri}
            self._hive = self.stack.enter_context(Hive23(self.folder / "hive", configuration))
            self.kinds[self._hive.pid] = HIVE
        return self._hive


def checksums(table: DataFrame) -> Content:
    """What a table holds."""
    table.createOrReplaceTempView("found")
    (row,) = table.sparkSession.sql(f"SELECT {CHECKSUMS} FROM found").collect()
    return tuple(map(int, row))
