"""What is HDFS's own: users, modes, quotas, safe mode, a NameNode that restarts, a writer that is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged

pytestmark = pytest.mark.slow


def put(location: Location, size: int = 100) -> None:
    file = storage_at(location).create(location)
    try:
        file.write(b"x" * size)
        file.close()
    except BaseException:
        file.discard()
        raise


def in_child(user: str, work: Callable[[], None]) -> None:
    """Do something as another user, in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ["HADOOP_USER_NAME"] = user
            work()
            status = 0
        except BaseException as error:
            print(f"{user}: {error!r}", flush=True)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextlib.contextmanager
def refused(kind: type[OSError], number: int, place: str) -> Iterator[None]:
    """The error has errno, one line and the place."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.value.errno == number
    assert place in str(caught.value.filename)
    assert "\n" not in str(caught.value)
    assert "\tat " not in str(caught.value)


def test_a_quota_and_safe_mode_are_told(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """By their names; after them all works again, and nothing is left."""
    storage, place = storage_at(hdfs_root), hdfs_root / "full"
    storage.create_directory(place)
    hdfs.set_quota(place.path, names=2)
    put(place / "a")
    with refused(OSError, errno.EDQUOT, "full/b"):
        put(place / "b")
    hdfs.safe_mode(True)
    try:
        with refused(OSError, errno.EROFS, "c"):
            put(hdfs_root / "c")
        assert [entry.name for entry in storage.list(place)] == ["a"]
    finally:
        hdfs.safe_mode(False)
    put(hdfs_root / "c")


def test_who_may_not_write_is_told_so(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """With the directory, its owner and its mode."""
    hdfs.make_directory(f"{hdfs_root.path}/private", mode="750", user="hive")

    def write() -> None:
        with refused(PermissionError, errno.EACCES, "private/x"):
            put(hdfs_root / "private/x")

    in_child("etl", write)


def test_modes_are_those_of_the_directory(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """Whatever the mask of this process; below a default ACL everything is asked for."""
    storage = storage_at(hdfs_root)
    for mode in ("770", "755", "700"):
        hdfs.make_directory(f"{hdfs_root.path}/{mode}", mode=mode)
        storage.create_directory(hdfs_root / mode / "deep/deeper")
        put(hdfs_root / mode / "deep/deeper/file")
        found = [storage._status(hdfs_root / mode / name).permission for name in ("deep", "deep/deeper")]
        assert found == [int(mode, 8)] * 2
        file = storage._status(hdfs_root / mode / "deep/deeper/file").permission
        assert file == int(mode, 8) & 0o666
    hdfs.make_directory(f"{hdfs_root.path}/acl", mode="755")
    hdfs.add_acl(f"{hdfs_root.path}/acl", "default:user:hive:rwx")
    storage.create_directory(hdfs_root / "acl/delta")

    def write() -> None:
        put(hdfs_root / "acl/delta/by_hive")

    in_child("hive", write)


def test_blocks_and_copies_are_as_configured(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """The client does not look at the configuration by itself."""
    configure_storage(HadoopSettings({**hdfs.settings, "dfs.blocksize": "2M", "dfs.replication": "1"}))
    put(hdfs_root / "f")
    status = storage_at(hdfs_root)._status(hdfs_root / "f")
    assert (status.blocksize, status.replication) == (2 * 2**20, 1)


@pytest.mark.long
def test_a_restarted_name_node_is_found_again(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """By a client that was there before."""
    put(hdfs_root / "before")
    hdfs.restart_namenode()
    put(hdfs_root / "after")
    assert [entry.name for entry in storage_at(hdfs_root).list(hdfs_root)] == ["after", "before"]


def test_a_small_file_is_created_when_it_is_closed(hdfs_root: Location) -> None:
    """Whoever writes it asks the NameNode nothing; who comes too late leaves the first one's file alone."""
    storage, place = storage_at(hdfs_root), hdfs_root / "f"
    first, second = storage.create(place), storage.create(place)
    for file, content in ((first, b"first"), (second, b"second")):
        file.write(content)
        assert storage.stat(place) is None
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    second.discard()
    with storage.open_input(place) as stream:
        assert stream.read() == b"first"
    never = storage.create(hdfs_root / "never")
    never.write(b"x")
    never.discard()
    assert [entry.name for entry in storage.list(hdfs_root)] == ["f"]


def test_what_a_killed_writer_left_goes_away(hdfs_root: Location) -> None:
    """The file is open for an hour, which stops neither its removal nor that of its directory."""
    storage = storage_at(hdfs_root)
    child = os.fork()
    if child == 0:
        directory = hdfs_root / "_mutation_1/w/0"
        storage.create_directory(directory)
        for name in ("a", "b"):
            storage.create(directory / name).write(b"x" * 3_000_000)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    found = storage.list(hdfs_root / "_mutation_1/w/0")
    assert [entry.name for entry in found] == ["a", "b"]
    storage.delete_file(found[0].location)
    storage.delete_directory(hdfs_root / "_mutation_1")
    assert storage.list(hdfs_root) == []


def test_a_mount_table(hdfs: MiniHdfs, hdfs_root: Location) -> None:
    """Of ``viewfs``: it works as what is mounted, and nothing is renamed from one mount to another."""
    for name in ("one", "two"):
        hdfs.make_directory(f"{hdfs_root.path}/{name}", mode="777")
    table = "fs.viewfs.mounttable.lake"
    links = {f"{table}.link./{name}": f"{hdfs_root}/{name}" for name in ("one", "two")}
    configure_storage(HadoopSettings({**hdfs.settings, **links, f"{table}.linkFallback": f"{hdfs_root}"}))
    root = Location.parse("viewfs://lake/")
    storage, place = storage_at(root), root / "one/t/d"
    storage.create_directory(place)
    put(place / "a", 3_000_000)
    assert [(e.location, e.size) for e in storage.list(place)] == [(place / "a", 3_000_000)]
    found = storage.stat(place / "a")
    assert found is not None
    assert found.location == place / "a"
    storage.publish(Staged(place / "a"), place / "b")
    with storage.open_input(place / "b") as stream:
        assert stream.read() == b"x" * 3_000_000
    with pytest.raises(OSError) as caught:
        storage.publish(Staged(place / "b"), root / "two/b")
    assert caught.value.errno == errno.EXDEV
    assert storage.stat(place / "b") is not None
    storage.delete_file(place / "b")
    storage.delete_directory(root / "one/t")
    assert storage.list(root / "one") == []
