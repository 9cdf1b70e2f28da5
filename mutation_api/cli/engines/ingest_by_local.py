"""``hive-mutate ingest`` in this process."""

from __future__ import annotations

from mutation_api.inputs.engines.local_engine import LocalEngine
from mutation_api.local.local_options import LocalOptions

__all__ = ["ENGINE"]

ENGINE = LocalEngine(LocalOptions())
