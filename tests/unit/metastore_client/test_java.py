"""Which Java is taken, and what is done about one that lacks Spark's module."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from metastore_client.java import JavaNotFoundError, find_java, hive_class_path, quiet_java_home


@pytest.fixture(autouse=True)
def fresh_search(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def _java(home: Path, version: str, *, refuses: str = "nothing") -> Path:
    """Write a stand-in that answers ``-version`` and prints its arguments otherwise."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *{refuses}*) echo "Module not found" >&2; exit 1;;\n'
        f"*-version*) echo 'openjdk version \"{version}\"' >&2;;\n"
        '*) for a do echo "<$a>"; done;; esac\n'
    )
    program.chmod(0o755)
    return program


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME wins over the PATH if it is new enough."""
    java = _java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """An old Java in JAVA_HOME is not taken; if nothing else is there the error names it and its version."""
    _java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError, match=str(tmp_path)):
        find_java()


def test_java_that_is_too_new_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is taken, here from the PATH; without one the error names those found."""
    _java(tmp_path / "new", "21.0.1")
    older = _java(tmp_path / "older", "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(older.parent))
    assert find_java(20) == older
    assert find_java() == tmp_path / "new" / "bin" / "java"
    with pytest.raises(JavaNotFoundError, match=r"no Java 17 to 16 in .*version 21\).*version 17\)"):
        find_java(16)


def test_java_without_the_vector_module_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's request for the missing module is left out; every other argument arrives as it was."""
    java = _java(tmp_path / "a home", "17.0.9", refuses="jdk.incubator.vector")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a home"))
    found = find_java()
    assert found != java
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "Main", "", "$x"]
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<Main>", "<>", "<$x>"]


def test_hive_common_leads_the_class_path(tmp_path: Path) -> None:
    """Hive's own valid-transaction list precedes the later one of another jar; given folders precede both."""
    first, second, *_ = hive_class_path(tmp_path).split(":")
    assert first == str(tmp_path)
    assert Path(second).name.startswith("hive-common-2.3")


def test_the_quiet_home_never_asks_for_the_vector_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Java that has the module would greet it with a warning; the quiet home's program leaves it out."""
    _java(tmp_path, "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    quiet_java_home.cache_clear()
    program = quiet_java_home() / "bin" / "java"
    quiet_java_home.cache_clear()
    arguments = ["--add-modules=jdk.incubator.vector", "Main"]
    assert subprocess.run([program, *arguments], capture_output=True, text=True).stdout == "<Main>\n"
