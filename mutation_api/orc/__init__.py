"""ORC files: format, writing and reading."""

from mutation_api.orc import pyarrow_version as pyarrow_version  # refuses one that is too old
