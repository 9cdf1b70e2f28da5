"""Jars for judges, in addition to pyspark's: named by Maven coordinates, pinned by checksum, fetched once.

Apache Ivy is one of pyspark's jars and resolves from Maven Central by itself, so a machine needs no Maven.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judges.errors import JudgeError
from judges.trust import trusted_certificates, write_trust_store
from metastore_client.java import find_java, spark_jars

FETCH_TIMEOUT_SECONDS = 560.0
JAVA_17_CLASS_VERSION = 61

# Each jar is named, so the descriptors that Ivy would read first (two requests per jar) are not needed.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false"/>
  </resolvers>
</ivysettings>
"""
_IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="judge"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY = (
    '    <dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" transitive="false"'
    ' conf="default->default(*)"><artifact name="{jar.name}" type="{jar.kind}" ext="{jar.kind}"{also}/>'
    "</dependency>"
)


_RETRIEVED = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True)
class Jar:
    """A jar in Maven Central; ``sha256`` is the hex digest of the one file that is accepted.

    ``java`` is the release of its class files; if it is later than 17, a copy for 17 is used. ``classifier``
    and ``kind`` are for other files than the one jar of an artifact: what is behind the version in the name,
    and the suffix.
    """

    organisation: str
    name: str
    version: str
    sha256: str
    java: str = "17"
    classifier: str = ""
    kind: str = "jar"

    @property
    def file_name(self) -> str:
        """``name-version.jar``."""
        behind = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{behind}.{self.kind}"


ECLIPSE_COMPILER = Jar(
    "org.eclipse.jdt",
    "ecj",
    "3.38.0",
    "97c566b120009c203a2fc8b291f4a9adbc171cf1ccb70f06f6b4e1828c00ce8e",
)
"""A Java compiler that runs on a bare JRE. It is always used, so that tests cover a bare machine."""


def cache_directory() -> Path:
    """Return the folder of jars and classes: $HIVE_MUTATION_CACHE, else ``.cache`` in the checkout."""
    given = os.environ.get("HIVE_MUTATION_CACHE")
    return Path(given) if given else Path(__file__).resolve().parent.parent / ".cache"


def read_pins(path: Path) -> list[Jar]:
    """Read a list of jars, a line each with the words of :class:`Jar`; ``#`` starts a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Jar(*line.split()) for line in lines if not line.startswith("#")]


def fetch(jar: Jar) -> Path:
    """Return the local path of one jar; see :func:`fetch_all`."""
    return fetch_all([jar])[0]


def fetch_all(jars: Sequence[Jar]) -> list[Path]:
    """Return the local paths of jars, in their order; missing ones are fetched in one run of Ivy.

    Raises:
        JudgeError: a jar cannot be fetched, or has another checksum than the pinned one.
    """
    folder = cache_directory() / "jars"
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as work:
            _resolve(missing, Path(work), folder)
            for jar in missing:
                _check(jar, Path(work) / jar.file_name)
                (Path(work) / jar.file_name).replace(folder / jar.file_name)
    for jar in jars:
        _check(jar, folder / jar.file_name)
    paths = [folder / jar.file_name for jar in jars]
    return [path if jar.java == "17" else _for_java_17(path) for jar, path in zip(jars, paths, strict=True)]


def _for_java_17(jar: Path) -> Path:
    """Return a copy of a jar, kept in the cache, whose class files say that they are for Java 17.

    A class file of a later Java also runs if it uses nothing of that Java; otherwise linking it fails.
    """
    target = cache_directory() / "java17" / jar.name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="copy-") as work:
            with zipfile.ZipFile(jar) as original, zipfile.ZipFile(Path(work) / jar.name, "w") as copy:
                for name in original.namelist():
                    content = original.read(name)
                    copy.writestr(name, _lowered(content) if name.endswith(".class") else content)
            (Path(work) / jar.name).replace(target)
    return target


def _lowered(content: bytes) -> bytes:
    """Set the version of a class file: two bytes after four of magic and two of the minor version."""
    version = min(int.from_bytes(content[6:8]), JAVA_17_CLASS_VERSION)
    return content[:4] + bytes(2) + version.to_bytes(2) + content[8:]


def _resolve(jars: Sequence[Jar], work: Path, folder: Path) -> None:
    """Let Ivy fetch jars into a work folder; if that fails, once more with the authorities Python trusts."""
    dependencies = "\n".join(_dependency(jar) for jar in jars)
    (work / "ivy.xml").write_text(_IVY_FILE.format(dependencies=dependencies), encoding="utf-8")
    (work / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    said = _run_ivy(work, [])
    if _absent(jars, work):
        said = _run_ivy(work, write_trust_store(work / "trusted.jks", trusted_certificates()))
    absent = _absent(jars, work)
    if absent:
        names = ", ".join(f"{jar.organisation}:{jar.name}:{jar.version}" for jar in absent)
        raise JudgeError(
            f"Ivy could not fetch {names}; without access to Maven Central put the files into {folder} "
            f"by hand.\n{said[-3000:]}"
        )


def _dependency(jar: Jar) -> str:
    also = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
    return _IVY_DEPENDENCY.format(jar=jar, also=also)


def _absent(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    return [jar for jar in jars if not (folder / jar.file_name).exists()]


def _run_ivy(work: Path, options: list[str]) -> str:
    """Run Ivy in a work folder that also holds its cache and files; returns its output."""
    command = [str(find_java()), *options, f"-Divy.default.ivy.user.dir={work}", "-jar", str(_ivy())]
    command += ["-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")]
    command += ["-cache", f"{work}/cache", "-retrieve", f"{work}/{_RETRIEVED}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"fetching jars took more than {FETCH_TIMEOUT_SECONDS:.0f} s") from error
    return done.stdout + done.stderr


def _ivy() -> Path:
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise JudgeError(f"no ivy-*.jar among pyspark's jars in {spark_jars()}")
    return found[-1]


def _check(jar: Jar, path: Path) -> None:
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != jar.sha256:
        raise JudgeError(f"{path} has the SHA-256 {digest}, expected {jar.sha256}; delete it and try again")
