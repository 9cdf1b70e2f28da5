"""WriterOptions: settings that are out of range."""

from __future__ import annotations

import pytest

from mutation_api.errors import ConfigurationError
from mutation_api.table.acid_table import WriterOptions


@pytest.mark.parametrize(
    "options",
    [
        {"stripe_bytes": 0},
        {"batch_rows": 0},
        {"compression": "lzo"},
        {"sort_memory_bytes": 0},
        {"sort_memory_bytes": 2**31 + 1},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    """A bad setting is refused before anything is written."""
    with pytest.raises(ConfigurationError):
        WriterOptions(**options)
