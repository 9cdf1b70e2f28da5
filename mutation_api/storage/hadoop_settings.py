"""What Hadoop's configuration says about storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["HadoopSettings"]


@dataclass(frozen=True)
class HadoopSettings:
    """Properties by name, as ``core-site.xml`` and ``hdfs-site.xml`` have them. May hold secrets."""

    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls) -> HadoopSettings:
        """What the files in ``HADOOP_CONF_DIR`` say."""
        return cls()
