"""Jars are fetched once and only the pinned file is accepted; compiled classes follow their sources."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from judges.errors import JudgeError
from judges.jars import Jar, fetch, fetch_all, read_pins
from judges.java import compiled

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIVE_MUTATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_jar_in_the_cache_is_taken(cache: Path) -> None:
    """A file with the pinned checksum is used without any access to the network."""
    (cache / "jars").mkdir(parents=True)
    (cache / "jars" / "thing-1.0.jar").write_bytes(b"content")
    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"content").hexdigest())
    assert fetch(jar).read_bytes() == b"content"


def test_another_file_is_refused(cache: Path) -> None:
    """A file with another checksum is refused and its path named."""
    (cache / "jars").mkdir(parents=True)
    (cache / "jars" / "thing-1.0.jar").write_bytes(b"tampered")
    jar = Jar("org.example", "thing", "1.0", hashlib.sha256(b"content").hexdigest())
    with pytest.raises(JudgeError, match=r"thing-1\.0\.jar has the SHA-256"):
        fetch(jar)


def test_class_files_of_a_later_java_are_lowered(cache: Path) -> None:
    """A jar marked as of Java 21 is given as a copy for Java 17; the pinned file stays what it was."""
    folder = cache / "jars"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "thing-1.0.jar", "w") as made:
        made.writestr("A.class", bytes.fromhex("cafebabe00000041") + b"rest")
        made.writestr("words.txt", "untouched")
    digest = hashlib.sha256((folder / "thing-1.0.jar").read_bytes()).hexdigest()
    pins = cache / "jars.txt"
    pins.write_text(f"# a comment\norg.example thing 1.0 {digest} 21\n")
    (path,) = fetch_all(read_pins(pins))
    with zipfile.ZipFile(path) as copy:
        assert copy.read("A.class") == bytes.fromhex("cafebabe0000003d") + b"rest"
        assert copy.read("words.txt") == b"untouched"
    assert hashlib.sha256((folder / "thing-1.0.jar").read_bytes()).hexdigest() == digest


def test_classes_are_compiled_once_per_content(tmp_path: Path) -> None:
    """The same sources give the same folder, changed ones another; errors show the compiler's message."""
    sources = tmp_path / "program"
    sources.mkdir()
    (sources / "A.java").write_text("public class A {}")
    first = compiled([sources], [])
    assert (first / "A.class").exists()
    assert compiled([sources], []) == first
    (sources / "A.java").write_text("public class A { int changed; }")
    assert compiled([sources], []) != first
    (sources / "A.java").write_text("public class A { int x = true; }")
    with pytest.raises(JudgeError, match="cannot convert from boolean to int"):
        compiled([sources], [])
