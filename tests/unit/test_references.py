"""What docstrings refer to exists: a module that moved takes its name along in every text."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("metastore_client", "mutation_api", "judges")
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_thrift" not in path.parts
)
REFERENCE = re.compile(r":(?:mod|class|func|data|attr|meth):`~?([\w.]+)")
STUB_NAME = re.compile(r" as (\w+)$", re.MULTILINE)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _full(path: Path, target: str) -> str:
    """A name from the top; a leading dot is the package of the module, each further one the package above."""
    dots = len(target) - len(target.lstrip("."))
    if not dots:
        return target
    package = path.parent.relative_to(ROOT).parts
    return ".".join([*package[: len(package) - dots + 1], target.lstrip(".")])


@functools.cache
def _names(module: Path) -> frozenset[str]:
    """What stands in a module: its own names, and those that its front door lists."""
    found: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                found.update(alias.asname or alias.name for alias in aliases)
    stub = module.with_suffix(".pyi")
    return frozenset(found | set(STUB_NAME.findall(stub.read_text("utf-8")) if stub.exists() else found))


def _exists(full: str) -> bool:
    parts = full.split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.exists():
            return length == len(parts) or parts[length] in _names(module)
    return False


def test_references_lead_somewhere() -> None:
    """Each reference to a module of ours, or to what it defines."""
    ours = [
        (path, _full(path, target))
        for path in MODULES
        for target in REFERENCE.findall(path.read_text(encoding="utf-8"))
        if target.startswith((".", *PACKAGES))
    ]
    assert ours
    assert [f"{_name(path)}: {target}" for path, target in ours if not _exists(target)] == []
