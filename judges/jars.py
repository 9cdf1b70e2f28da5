"""Jars that judges need beyond pyspark's: named by Maven coordinates, pinned by checksum, fetched once.

Apache Ivy lies among pyspark's jars and resolves from Maven Central by itself, so a machine needs no Maven.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from judges.errors import JudgeError
from judges.trust import trusted_certificates, write_trust_store
from metastore_client.java import find_java, spark_jars

__all__ = ["ECLIPSE_COMPILER", "Jar", "cache_directory", "fetch"]

FETCH_TIMEOUT_SECONDS = 300.0

_IVY_FILE = """<ivy-module version="2.0">
  <info organisation="local" module="judge"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.version}" transitive="false"
                conf="default->default(*)"><artifact name="{jar.name}" type="jar" ext="jar"/></dependency>
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True)
class Jar:
    """A jar in Maven Central; ``sha256`` is the hex digest of the one file that is accepted."""

    organisation: str
    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """``name-version.jar``."""
        return f"{self.name}-{self.version}.jar"


ECLIPSE_COMPILER = Jar(
    "org.eclipse.jdt",
    "ecj",
    "3.38.0",
    "97c566b120009c203a2fc8b291f4a9adbc171cf1ccb70f06f6b4e1828c00ce8e",
)
"""A Java compiler that runs on a bare JRE; used always, so that tests show what a bare machine gets."""


def cache_directory() -> Path:
    """Give the folder of jars and classes: $HIVE_MUTATION_CACHE, else ``.cache`` in the checkout."""
    given = os.environ.get("HIVE_MUTATION_CACHE")
    return Path(given) if given else Path(__file__).resolve().parent.parent / ".cache"


def fetch(jar: Jar) -> Path:
    """Give the local path of a jar, fetching it on first use.

    Raises:
        JudgeError: it cannot be fetched, or what came has another checksum than the pinned one.
    """
    target = cache_directory() / "jars" / jar.file_name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as work:
            fetched = _resolve(jar, Path(work), target)
            _check(jar, fetched)
            fetched.replace(target)
    _check(jar, target)
    return target


def _resolve(jar: Jar, work: Path, target: Path) -> Path:
    """Let Ivy fetch a jar; if that fails, once more with the authorities that Python trusts."""
    fetched = work / jar.file_name
    ivy_file = work / "ivy.xml"
    ivy_file.write_text(_IVY_FILE.format(jar=jar), encoding="utf-8")
    said = _run_ivy(jar, work, ivy_file, [])
    if not fetched.exists():
        said = _run_ivy(jar, work, ivy_file, write_trust_store(work / "trusted.jks", trusted_certificates()))
    if not fetched.exists():
        raise JudgeError(
            f"Ivy could not fetch {jar.organisation}:{jar.name}:{jar.version}; without access to Maven "
            f"Central put the file into {target} by hand.\n{said[-3000:]}"
        )
    return fetched


def _run_ivy(jar: Jar, work: Path, ivy_file: Path, options: list[str]) -> str:
    """Run Ivy in a work folder that also holds its cache and files; gives what it said."""
    command = [str(find_java()), *options, f"-Divy.default.ivy.user.dir={work}", "-jar", str(_ivy())]
    command += ["-ivy", str(ivy_file), "-cache", f"{work}/cache"]
    command += ["-retrieve", f"{work}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"fetching {jar.file_name} took more than {FETCH_TIMEOUT_SECONDS:.0f} s") from error
    return done.stdout + done.stderr


def _ivy() -> Path:
    found = sorted(spark_jars().glob("ivy-*.jar"))
    if not found:
        raise JudgeError(f"no ivy-*.jar among pyspark's jars in {spark_jars()}")
    return found[-1]


def _check(jar: Jar, path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise JudgeError(f"{path} has the SHA-256 {digest}, expected {jar.sha256}; delete it and try again")
