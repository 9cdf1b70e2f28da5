"""Other versions of pyspark for tests and benchmarks: each in an environment that the cache keeps.

Such an environment has its own pyspark; everything else is this environment's. So it is there in a minute,
and tests one difference at a time.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

from isal import igzip

from judges.errors import JudgeError
from judges.jars import cache_directory
from metastore_client.java import find_java

OWN = "4.3"
"""The version that all other tests run on."""

_DISTUTILS = ("setuptools>=68",) if sys.version_info >= (3, 12) else ()
"""Spark 3.5 needs distutils, which Python has up to 3.11."""

OTHERS: Mapping[str, tuple[str, ...]] = {
    "3.5": ("pyspark==3.5.9", "py4j==0.10.9.9", *_DISTUTILS),
    "4.0": ("pyspark==4.0.5", "py4j==0.10.9.9"),
}
"""What is installed for each of the other versions."""

SPARKS = (*OTHERS, OWN)

ROOT = Path(__file__).parents[1]
INSTALL_TIMEOUT_SECONDS = 900
_QUIETLY = ("--quiet", "--disable-pip-version-check", "--no-deps")
_AS_SOURCE = ("--no-cache-dir", "--no-binary=:all:")


def python_with(spark: str) -> Path:
    """The interpreter of an environment with this version of pyspark; made if there is none yet.

    Raises:
        JudgeError: it cannot be made, or this environment has another pyspark than the newest version here.
    """
    if spark == OWN:
        found = importlib.metadata.version("pyspark")
        if not found.startswith(f"{OWN}."):
            raise JudgeError(f"tests run with pyspark {found}, and are written for {OWN}")
        return Path(sys.executable)
    wanted = OTHERS[spark]
    name = "-".join([*wanted[:2], f"python{sys.version_info[0]}.{sys.version_info[1]}"])
    folder = cache_directory() / "sparks" / name.replace("==", "-")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="make-") as work:
            _make(Path(work) / "env", wanted)
            _move(Path(work) / "env", folder)
    # The rest of the packages: found behind the environment's own.
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin" / "python"


def environment(java_options: str = "") -> dict[str, str]:
    """Variables of a program that runs there: this checkout, its Java, and no options for other jars."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    java = str(find_java().parent.parent)
    return {**kept, "PYTHONPATH": str(ROOT), "JAVA_HOME": java, "SPARK_SUBMIT_OPTS": java_options}


def _make(folder: Path, wanted: tuple[str, ...]) -> None:
    """Unpack the source archive, which has 300 MiB; pip would pack it into a wheel first, and unpack that.

    ``isal`` unpacks it in a third of zlib's time.
    """
    venv.create(folder, symlinks=True)
    python, download = folder / "bin" / "python", folder / "download"
    spark, *others = wanted
    lacking = [each for each in others if not _is_here(each)]
    if lacking:
        _run("-m", "pip", "--python", str(python), "install", *_QUIETLY, "--no-compile", *lacking)
    download.mkdir()
    _run(
        "-m",
        "pip",
        "download",
        *_QUIETLY,
        "--no-cache-dir",
        "--no-binary=:all:",
        "--dest",
        str(download),
        spark,
    )
    (archive,) = download.iterdir()
    with (
        igzip.open(archive) as stream,  # type: ignore[no-untyped-call]
        tarfile.open(fileobj=stream, mode="r|") as packed,
    ):
        packed.extractall(download, filter="data")
    (unpacked,) = (each for each in download.iterdir() if each.is_dir())
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (unpacked / "pyspark").rename(packages / "pyspark")
    for part in ("jars", "bin"):
        shutil.rmtree(packages / "pyspark" / part, ignore_errors=True)
        (unpacked / "deps" / part).rename(packages / "pyspark" / part)
    shutil.rmtree(download)


def _is_here(wanted: str) -> bool:
    """Whether this environment, which the other shares, has the package in just this version."""
    name, _, version = wanted.partition("==")
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def _move(made: Path, folder: Path) -> None:
    """Move a complete environment; another process may have been quicker. Its scripts are not used."""
    try:
        made.replace(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(made)


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise JudgeError(f"python {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
