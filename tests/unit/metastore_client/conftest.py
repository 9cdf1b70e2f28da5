"""What tests of the metastore's client share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.metastore_client.scripted_metastore import Scripted


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.client.close()
