"""An emulator of Google Cloud Storage for the run, and an empty place in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.emulators import GcsServer
from mutation_api.storage.connect import configure
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fix_judge import note_judge

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def gcs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """A server with one bucket; without it every test that asks fails."""
    with GcsServer(tmp_path_factory.mktemp("gcs")) as server:
        note_judge(request.config, server.description)
        yield server


@pytest.fixture
def gcs_root(gcs: GcsServer) -> Iterator[Location]:
    """A place with nothing below it; this process finds the server, which does well again after the test."""
    configure(HadoopSettings(gcs.settings))
    gcs.take_counts()
    yield Location.parse(f"{gcs.root}/tests/{next(_numbers)}")
    gcs.fail()
    configure(None)
