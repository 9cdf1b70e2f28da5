"""Delegation tokens that a process was started with, or that were shipped to it, and their texts."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mutation_api.storage.connect import configure_storage, token_issuers
from mutation_api.storage.hadoop_settings import (
    AUTHENTICATION,
    VARIABLE,
    HadoopSettings,
    hdfs_tokens,
    private_file,
)
from mutation_api.storage.hdfs_login import log_in, what_to_do
from mutation_api.storage.location import Location

HOUR_MILLIS = 3_600_000
PASSWORD = b"\x07secret\xff"
NOBODY = "127.0.0.1:1"
"""Where no NameNode listens, which is found out at once."""

SECURE = {AUTHENTICATION: "kerberos"}


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def tokens(*services: str, kind: str = "HDFS_DELEGATION_TOKEN", millis_left: int = HOUR_MILLIS) -> bytes:
    """What Hadoop would write: a file with a token for each."""
    last = int(time.time() * 1000) + millis_left
    number = b"\x8a" + last.to_bytes(6, "big")
    identifier = b"\0" + text(b"etl") + text(b"yarn") + text(b"") + number + number + b"\1\2"
    entries = [
        text(service.encode()) + b"".join(map(text, (identifier, PASSWORD, kind.encode(), service.encode())))
        for service in services
    ]
    return b"HDTS\0" + bytes([len(entries)]) + b"".join(entries) + b"\0"


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process was started with none."""
    monkeypatch.delenv(VARIABLE, raising=False)
    yield
    configure_storage(None)


def test_shipped_tokens_are_used_as_long_as_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then those that the process was started with; no other user can read them."""
    own = tmp_path / "own"
    own.write_bytes(tokens("own:1"))
    monkeypatch.setenv(VARIABLE, str(own))
    for service in ("first:1", "second:1"):
        configure_storage(HadoopSettings(SECURE, tokens(service)))
        assert [token.service for token in hdfs_tokens()] == [service]
        assert stat.S_IMODE(os.stat(os.environ[VARIABLE]).st_mode) == 0o600
    held = os.environ[VARIABLE]
    configure_storage(None)
    assert os.environ[VARIABLE] == str(own)
    assert not os.path.exists(held)
    assert [token.service for token in hdfs_tokens()] == ["own:1"]
    configure_storage(HadoopSettings(SECURE))
    assert os.environ[VARIABLE] == str(own)


def test_a_private_file_ends_with_its_block() -> None:
    """Other processes of the user can open it till then."""
    with private_file() as path:
        path.write_bytes(b"x" * 10)
        assert path.read_bytes() == path.read_bytes() == b"x" * 10
        child = os.fork()
        if child == 0:
            os._exit(0 if path.read_bytes() == b"x" * 10 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not path.exists()


DAMAGED = tokens("a:1").replace(b"\x03etl", b"\x7fetl")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"HDTS\2", b"HDTS\0\x05\x01n", b"HDTS\1\x05ab", DAMAGED],
    ids=["missing", "empty", "newer", "short", "short message", "damaged identifier"],
)
def test_a_file_that_holds_no_tokens_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    """The client would go on without."""
    file = tmp_path / "tokens"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(OSError, match=VARIABLE) as caught:
        log_in(f"hdfs://{NOBODY}", HadoopSettings(SECURE))
    assert caught.value.errno == errno.EINVAL
    assert caught.value.filename == str(file)
    assert str(file) in what_to_do()


def test_what_to_do_names_the_tokens() -> None:
    """With their NameNodes and ends, and no secret."""
    assert what_to_do().endswith(f"{VARIABLE} is not set")
    configure_storage(HadoopSettings(SECURE, tokens("ha-hdfs:fresh")))
    assert "ha-hdfs:fresh (ends 20" in what_to_do()
    configure_storage(HadoopSettings(SECURE, tokens("10.0.0.1:8020", millis_left=-HOUR_MILLIS)))
    assert "10.0.0.1:8020 (ended 20" in what_to_do()
    configure_storage(HadoopSettings(SECURE, tokens("rm:1", kind="RM_DELEGATION_TOKEN")))
    assert "contains tokens for no HDFS" in what_to_do()


def test_the_client_gets_the_name_that_a_token_has() -> None:
    """A host is looked up; of several tokens one that is good is taken; the user stays."""
    configure_storage(HadoopSettings(SECURE, tokens("127.0.0.1:1", "other:1")))
    assert log_in("hdfs://localhost:1", HadoopSettings(SECURE))[0] == "hdfs://127.0.0.1:1"
    assert log_in("hdfs://me@localhost:1/x", HadoopSettings(SECURE))[0] == "hdfs://me@127.0.0.1:1/x"
    assert log_in("hdfs://localhost:2", HadoopSettings(SECURE))[0] == "hdfs://localhost:2"
    assert log_in("hdfs://ns", HadoopSettings(SECURE))[0] == "hdfs://ns"
    configure_storage(HadoopSettings(SECURE, tokens("127.0.0.1:1", millis_left=0)))
    assert log_in("hdfs://localhost:1", HadoopSettings(SECURE))[0] == "hdfs://localhost:1"


def test_mount_tables_get_it_too() -> None:
    """In the targets of their links."""
    links = {
        "fs.viewfs.mounttable.c.link./a": "hdfs://localhost:1/a",
        "fs.viewfs.mounttable.c.linkFallback": "hdfs://localhost:2/b",
    }
    configure_storage(HadoopSettings(SECURE, tokens("127.0.0.1:1")))
    url, properties = log_in("viewfs://c", HadoopSettings({**SECURE, **links}))
    assert url == "viewfs://c"
    assert properties["fs.viewfs.mounttable.c.link./a"] == "hdfs://127.0.0.1:1/a"
    assert properties["fs.viewfs.mounttable.c.linkFallback"] == "hdfs://localhost:2/b"


def test_a_token_needs_settings_that_say_so() -> None:
    """Otherwise the client would not use it, and be somebody else."""
    configure_storage(HadoopSettings({}, tokens("127.0.0.1:1")))
    with pytest.raises(PermissionError, match="would not be used") as caught:
        log_in("hdfs://localhost:1", HadoopSettings({}))
    assert AUTHENTICATION in str(caught.value)
    assert caught.value.errno == errno.EACCES
    log_in("hdfs://localhost:2", HadoopSettings({}))


def test_no_text_shows_a_token() -> None:
    """Neither of the settings nor of the tokens."""
    given = HadoopSettings(SECURE, tokens("a:1"))
    configure_storage(given)
    for each in (given, given.with_properties({"fs.x": "y"}), hdfs_tokens()):
        for form in (repr(PASSWORD)[2:-1], PASSWORD.hex()):
            assert form not in f"{each!r} {each}"
    assert given.with_properties({}).tokens == given.tokens


def test_who_issues_tokens() -> None:
    """Each HDFS once, where the settings ask for security."""
    texts = ("hdfs://a:1/w/t", "hdfs://a:1/w/u", "viewfs://c/w", "file:/w", "s3a://bucket/w")
    places = [Location.parse(each) for each in texts]
    configure_storage(HadoopSettings(SECURE))
    assert token_issuers(places) == ("hdfs://a:1/", "viewfs://c/")
    configure_storage(HadoopSettings({}))
    assert token_issuers(places) == ()
