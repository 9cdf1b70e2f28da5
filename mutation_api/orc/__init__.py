"""ORC files: format, writing and reading. A pyarrow version with silent errors is rejected on import."""

import mutation_api.orc.format.checked_file  # noqa: F401
