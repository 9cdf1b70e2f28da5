"""Every kind of storage, for tests of what they have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutation_api.storage.location import Location


@pytest.fixture(
    params=[
        "local",
        pytest.param("hdfs", marks=pytest.mark.slow),
        pytest.param("s3", marks=pytest.mark.slow),
        pytest.param("gcs", marks=pytest.mark.slow),
        pytest.param("azure", marks=pytest.mark.slow),
    ]
)
def storage_root(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place in each storage."""
    if request.param == "local":
        return Location.given(tmp_path)
    root: Location = request.getfixturevalue(f"{request.param}_root")
    return root
