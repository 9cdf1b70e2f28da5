"""An HDFS that asks for no authentication, and settings or tokens that demand it."""

from __future__ import annotations

import errno

import pytest

from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import AUTHENTICATION, HadoopSettings
from mutation_api.storage.location import Location

pytestmark = pytest.mark.slow


def test_it_is_no_place_for_who_wants_security(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """As Hadoop refuses it, and unless Hadoop's own setting allows it; the client alone would be anybody."""
    secure = HadoopSettings({**hdfs.settings, AUTHENTICATION: "kerberos"})
    configure_storage(secure)
    with pytest.raises(PermissionError, match="requires no authentication") as caught:
        storage_at(hdfs_root).list(hdfs_root)
    assert caught.value.errno == errno.EACCES
    assert hdfs_root.authority in str(caught.value.filename)
    configure_storage(secure.with_properties({"ipc.client.fallback-to-simple-auth-allowed": "true"}))
    assert storage_at(hdfs_root).list(hdfs_root) == []


@pytest.mark.parametrize("said", ["simple", "SIMPLE", ""])
def test_settings_that_say_simple(hdfs: MiniHdfs, hdfs_root: Location, said: str) -> None:
    """In any spelling that Hadoop takes."""
    configure_storage(HadoopSettings({**hdfs.settings, AUTHENTICATION: said}))
    assert storage_at(hdfs_root).list(hdfs_root) == []
