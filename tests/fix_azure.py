"""An emulator of Azure's blob storage for the run, and an empty place in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.emulators import AzureServer
from mutation_api.storage.connect import configure
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fix_judge import note_judge

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def azure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A server with one container; without it every test that asks fails."""
    with AzureServer(tmp_path_factory.mktemp("azure")) as server:
        note_judge(request.config, server.description)
        yield server


@pytest.fixture
def azure_root(azure: AzureServer) -> Iterator[Location]:
    """A place with nothing below it; this process finds the server, which does well again after the test."""
    configure(HadoopSettings(azure.settings))
    azure.take_counts()
    yield Location.parse(f"{azure.root}/tests/{next(_numbers)}")
    azure.fail()
    configure(None)
