"""DuckDB with its extensions for Delta and Iceberg, as a reader of exported tables.

DuckDB fetches its extensions from a server of its own. They are also Python packages, each for one release of
DuckDB, which need not be the one that other tests run with. So that release lies in a folder of the cache,
and runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from judges.errors import JudgeError
from judges.jars import cache_directory

_VERSION = "1.5.5"
_EXTENSIONS = ("parquet", "avro", "delta", "iceberg")
_TIMEOUT_SECONDS = 600

_PROGRAM = """
import json, sys
from pathlib import Path
import duckdb

folder, names, query = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
connection = duckdb.connect(config={"extension_directory": str(folder / "installed")})
for name in names:
    (file,) = (folder / f"duckdb_extension_{name}" / "extensions").glob(f"*/{name}.duckdb_extension")
    connection.execute(f"INSTALL '{file}'")
    connection.execute(f"LOAD {name}")
connection.execute("SET enable_progress_bar = false")
json.dump(connection.execute(query).fetchall(), sys.stdout, default=str)
"""


def duckdb_rows(query: str) -> list[Any]:
    """Run a query in DuckDB, such as ``SELECT id FROM delta_scan('/path')``; values without JSON are strings.

    Raises:
        JudgeError: the packages cannot be installed, or the query failed.
    """
    folder = _folder()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), ",".join(_EXTENSIONS), query],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )
    if done.returncode != 0:
        raise JudgeError(f"DuckDB failed at {query}: {done.stderr[-3000:]}")
    rows: list[Any] = json.loads(done.stdout)
    return rows


def _folder() -> Path:
    """Return the folder with the packages; they are installed by pip on the first call."""
    target = cache_directory() / f"duckdb-{_VERSION}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    wanted = ["duckdb", *(f"duckdb-extension-{name}" for name in _EXTENSIONS)]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="install-") as work:
        made = Path(work) / "duckdb"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(made), *(f"{name}=={_VERSION}" for name in wanted)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise JudgeError(f"DuckDB cannot be installed: {done.stderr[-3000:]}")
        try:
            made.replace(target)
        except OSError:
            if not target.exists():
                raise
    return target
