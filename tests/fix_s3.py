"""An S3 server for the run, and an empty place in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.s3_server import BUCKET, S3Server
from mutation_api.storage.connect import configure
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from tests.fix_judge import note_judge

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with one bucket; without it every test that asks fails."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        note_judge(request.config, server.description)
        yield server


@pytest.fixture
def s3_root(s3: S3Server) -> Iterator[Location]:
    """A place with nothing below it; this process finds the server, which does well again after the test."""
    configure(HadoopSettings(s3.settings))
    s3.take_counts()
    yield Location.parse(f"s3a://{BUCKET}/tests/{next(_numbers)}")
    s3.fail()
    configure(None)
