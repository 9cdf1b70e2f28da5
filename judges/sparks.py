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
import tempfile
from collections.abc import Mapping
from pathlib import Path

from judges.errors import JudgeError
from judges.jars import cache_directory
from metastore_client.java import find_java

__all__ = ["OTHERS", "OWN", "SPARKS", "environment", "python_with"]

OWN = "4.3"
"""The version that all other tests run on."""

OTHERS: Mapping[str, tuple[str, ...]] = {
    "3.5": ("pyspark==3.5.9", "py4j==0.10.9.9"),
    "4.0": ("pyspark==4.0.5", "py4j==0.10.9.9"),
}
"""What is installed for each of the other versions."""

SPARKS = (*OTHERS, OWN)

ROOT = Path(__file__).parents[1]
INSTALL_TIMEOUT_SECONDS = 900


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
    name = "-".join([*wanted, f"python{sys.version_info[0]}.{sys.version_info[1]}"])
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
    _run("-m", "venv", "--without-pip", str(folder))
    _run("-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", *wanted)


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
