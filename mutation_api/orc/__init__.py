"""ORC files: format, writing and reading. A pyarrow version with silent errors is rejected on import."""

import mutation_api.orc.pyarrow_version  # noqa: F401
