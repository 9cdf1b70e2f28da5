"""Compiles the judges' Java programs; classes are cached by their sources, jars and compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from judges.errors import JudgeError
from judges.jars import ECLIPSE_COMPILER, cache_directory, fetch
from metastore_client.java import find_java

__all__ = ["compiled"]

COMPILE_TIMEOUT_SECONDS = 120.0
JAVA_RELEASE = "17"


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
    options = [f"-{JAVA_RELEASE}", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-d", str(classes)]
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


def _publish(classes: Path, target: Path) -> None:
    """Move the finished classes to the target; another process may already have put the same ones there."""
    try:
        classes.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(classes)
