"""pack_python: pack this Python with this library into one file, for machines that have neither.

Spark unpacks an archive (``spark.archives``, ``--archives``) next to each executor and runs the Python that
``PYSPARK_PYTHON`` names there. Tools that pack a virtual environment leave out its interpreter, so their
archives only run where the same interpreter is installed in the same place. This archive includes it. It
contains the packages that are installed here, so workers have the same versions as the driver. PySpark itself
is left out, since Spark provides its own to each executor.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from isal import igzip

from mutation_api.errors import ConfigurationError

EXTRAS_DEFAULT = ("spark", "hdfs")
PROGRAM = "bin/python"
"""The interpreter's path relative to the directory into which the archive is unpacked."""

OURS = "hive-mutation-api"

_BROUGHT_BY_SPARK = frozenset({"pyspark", "py4j"})
_NOT_NEEDED = frozenset(
    {"__pycache__", "tests", "test", "idlelib", "ensurepip", "lib2to3", "turtledemo", "tkinter", "include"}
)
_STARTER = """#!/bin/sh
# Run the Python beside this file, regardless of where it was unpacked.
home=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)
LD_LIBRARY_PATH="$home/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "$home/bin/{name}" "$@"
"""
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<extras>[^\]]*)\])?")
_EXTRA = re.compile(r"extra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]")


@dataclass(frozen=True)
class PackedPython:
    """The result of packing: the archive, its size, and its distributions with their versions."""

    archive: Path
    byte_count: int
    distributions: tuple[str, ...]


def pack_python(
    archive: Path, *, extras: Iterable[str] = EXTRAS_DEFAULT, packages: Iterable[str] = ()
) -> PackedPython:
    """Write this interpreter, its standard library, this library and its dependencies into a ``.tar.gz``.

    The machines must have the same operating system and processor as this one, the same or a later C library,
    and for Kerberos its system library. Tests and headers are left out.

    Args:
        archive: the file to write. An existing file is replaced when the new one is complete.
        extras: extras of this library, such as ``hdfs``, ``s3``, ``kerberos``.
        packages: further distributions that the job imports, by their names for pip. Their dependencies are
            included.

    Raises:
        ConfigurationError: If a distribution is not installed here, or if the file's name does not end in
            ``.tar.gz`` or ``.tgz`` (Spark would not unpack it).
        OSError: If the file cannot be written.
    """
    if not archive.name.endswith((".tar.gz", ".tgz")):
        raise ConfigurationError(
            f"{archive}: the name must end in .tar.gz or .tgz; otherwise Spark does not unpack it"
        )
    found = _closure([(OURS, frozenset(extras)), *((name, frozenset[str]()) for name in packages)])
    partial = archive.with_name(f".{archive.name}.partial")
    try:
        with (
            _compressed(partial) as packed,
            tarfile.open(fileobj=packed, mode="w") as tar,
        ):
            add = _Adder(tar)
            _add_interpreter(add)
            for distribution in found:
                _add_distribution(add, distribution)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    names = tuple(sorted(f"{each.metadata['Name']} {each.version}" for each in found))
    return PackedPython(archive, archive.stat().st_size, names)


def _compressed(file: Path) -> IO[bytes]:
    opened: IO[bytes] = igzip.open(file, "wb", compresslevel=1)  # type: ignore[no-untyped-call]
    return opened


class _Adder:
    """A writer that adds files to an archive, each only once and readable by everyone."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._names: set[str] = set()

    def file(self, path: Path, name: str) -> None:
        """Add a file, or the file to which a link leads."""
        if name not in self._names and path.is_file():
            self._names.add(name)
            self._tar.add(path.resolve(), name, recursive=False, filter=_anonymous)

    def text(self, text: str, name: str) -> None:
        """Add a program with this source text."""
        info = tarfile.TarInfo(name)
        data = text.encode()
        info.size, info.mode = len(data), 0o755
        self._tar.addfile(info, io.BytesIO(data))

    def folder(self, folder: Path, name: str, keep: Callable[[str], bool] = lambda _: True) -> None:
        """Add the files below a directory, except those not needed at run time. ``keep`` selects by path."""
        for parent, folders, files in os.walk(folder, followlinks=True):
            folders[:] = [each for each in folders if each not in _NOT_NEEDED]
            for file in files:
                path = Path(parent) / file
                inside = path.relative_to(folder).as_posix()
                if not file.endswith((".pyc", ".a")) and keep(inside):
                    self.file(path, f"{name}/{inside}")


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    return info


def _version() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _add_interpreter(add: _Adder) -> None:
    """Add the program, its shared library if it has one, and the standard library."""
    program = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    add.file(program, f"bin/{_version()}")
    add.text(_STARTER.format(name=_version()), PROGRAM)
    shared = sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and shared:
        add.file(Path(sysconfig.get_config_var("LIBDIR")) / shared, f"lib/{shared}")
    standard = Path(
        sysconfig.get_path("stdlib", vars={"base": sys.base_prefix, "installed_base": sys.base_prefix})
    )
    others = ("site-packages/", "dist-packages/", "config-")
    add.folder(standard, f"lib/{_version()}", lambda inside: not inside.startswith(others))


def _add_distribution(add: _Adder, distribution: importlib.metadata.Distribution) -> None:
    """Add a distribution's files. If it is installed for development, add the packages of its source."""
    target = f"lib/{_version()}/site-packages"
    for each in distribution.files or ():
        parts = each.parts
        if ".." not in parts and not _NOT_NEEDED & {*parts} and each.suffix not in (".pyc", ".pth"):
            add.file(Path(str(distribution.locate_file(each))), f"{target}/{each.as_posix()}")
    if distribution.metadata["Name"] == OURS:
        for name in ("metastore_client", "mutation_api"):
            spec = importlib.util.find_spec(name)
            for place in (spec and spec.submodule_search_locations) or ():
                add.folder(Path(place), f"{target}/{name}")


def _closure(roots: Iterable[tuple[str, frozenset[str]]]) -> list[importlib.metadata.Distribution]:
    """Return the distributions with these names and extras, and all their dependencies that are installed."""
    found: dict[str, importlib.metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    wanted = [(_normal(name), extras, True) for name, extras in roots]
    while wanted:
        name, extras, is_asked_for = wanted.pop()
        if (name, extras) in seen or name in _BROUGHT_BY_SPARK:
            continue
        seen.add((name, extras))
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if is_asked_for:
                raise ConfigurationError(
                    f"cannot pack the Python package {name}: it is not installed here. Run pip install {name}"
                ) from None
            continue  # needed only on other systems or Python versions
        wanted += [(n, e, o) for n, e, o in _needs(found[name], extras)]
    return list(found.values())


def _needs(
    distribution: importlib.metadata.Distribution, extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str], bool]]:
    """Yield the names and extras of its dependencies with these extras, and True if one is always needed."""
    for text in distribution.requires or ():
        requirement, _, marker = text.partition(";")
        extra = _EXTRA.search(marker)
        match = _REQUIREMENT.match(requirement)
        if match and (extra is None or extra["extra"] in extras):
            inner = frozenset(filter(None, (each.strip() for each in (match["extras"] or "").split(","))))
            is_certain = not marker.strip() or _EXTRA.fullmatch(marker.strip()) is not None
            yield _normal(match["name"]), inner, is_certain


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
