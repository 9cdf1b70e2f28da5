"""ORC files: format, writing and reading. A pyarrow that does so wrongly is refused here."""

import mutation_api.orc.pyarrow_version  # noqa: F401
