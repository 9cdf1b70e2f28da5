"""Rules about the project's own text: front doors, docstrings, nothing that exists on one machine only."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("metastore_client", "mutation_api", "judges")
FRONT_DOORS = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for package in PACKAGES
    for path in (ROOT / package).rglob("__init__.py")
    if "_thrift" not in path.parts
)
MODULES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_thrift" not in path.parts
)

TEXT_SUFFIXES = {"", ".cfg", ".ini", ".java", ".md", ".py", ".sh", ".sql", ".thrift", ".toml", ".yml"}
PLACES = (*PACKAGES, ".github", "benchmarks", "docs", "examples", "tests", ".ci")

# Written in pieces, so that this file may hold them.
FORBIDDEN = {
    "the host of a package registry": r"(?:repo1?\.mav" r"en|py" r"pi\.org|python" r"hosted\.org)",
    "a path of one machine": r"/(?:ro" r"ot|ho" r"me/\w+|wo" r"rk)/",
    "a mark of unfinished work": r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b",
}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _texts() -> list[Path]:
    beside = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    inside = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in beside + inside
        if path.suffix in TEXT_SUFFIXES and not {"golden", "__pycache__"} & set(path.parts)
    )


@pytest.mark.parametrize("package", FRONT_DOORS)
def test_front_door_is_exact(package: str) -> None:
    """``__all__`` of a package names what exists, and all that the package imports for others."""
    module = importlib.import_module(package)
    offered = list(getattr(module, "__all__", []))
    assert [name for name in offered if not hasattr(module, name)] == []
    tree = _tree(ROOT / package.replace(".", "/") / "__init__.py")
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert imported <= set(offered)


def test_front_doors_alone_list_their_names() -> None:
    """A list in every module would repeat each name: what is private begins with an underscore."""
    listing = [path for path in MODULES if any(map(_assigns_all, _tree(path).body))]
    assert {path.name for path in listing} == {"__init__.py", "errors.py"}


def _assigns_all(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "__all__"
    )


def test_public_names_are_explained() -> None:
    """Every module and every public class, function and method says what it is for."""
    assert [_name(path) for path in MODULES if not ast.get_docstring(_tree(path))] == []
    unexplained = [
        f"{_name(path)}: {name}"
        for path in MODULES
        for name, node in _public(_tree(path))
        if not ast.get_docstring(node)
    ]
    assert unexplained == []


def _public(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef) and not each.name.startswith("_"):
            if any(isinstance(d, ast.Name) and d.id == "overload" for d in each.decorator_list):
                continue  # the implementation explains all of them
            yield each.name, each
            if isinstance(each, ast.ClassDef):
                yield from ((f"{each.name}.{name}", method) for name, method in _public(each))


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_of_one_place(what: str) -> None:
    """No file names a registry's host or a path of one machine, or is marked as unfinished."""
    texts = _texts()
    assert len(texts) > 50
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{_name(path)}:{number}: {line.strip()[:80]}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_the_changelog_has_the_version() -> None:
    """Its newest section is that of setup.cfg, where alone the version stands."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(r"(\S+) - (?:unreleased|\d{4}-\d{2}-\d{2})", sections[0])
    assert sections[0].split()[0] == setup["metadata"]["version"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/**/DESIGN.md")), ids=_name)
def test_a_design_is_one_page(path: Path) -> None:
    """What holds today and why; measurements have a page of their own."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 62
    assert [number for number, line in enumerate(lines, 1) if len(line) > 160] == []


def test_a_module_has_one_concern() -> None:
    """450 lines at most; functions have fewer than 60 beside their docstring, unless they list arguments."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert [f"{_name(path)}: {count} lines" for path, count in lines.items() if count > 450] == []
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    long = [
        f"{_name(path)}: {node.name}"
        for path in MODULES
        for node in ast.walk(_tree(path))
        if isinstance(node, kinds) and _code_lines(node) >= 60 and "arguments" not in node.name
    ]
    assert long == []


def _code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        text = function.body[0]
        lines -= (text.end_lineno or text.lineno) - text.lineno + 1
    return lines


def test_names_of_tests_have_no_numbers_of_other_documents() -> None:
    """G and R number the statements of a page in ``docs``, and v is a version; others are riddles."""
    riddles = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *def (test_[a-z]\d+_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if not re.match(r"test_[grv]\d", name)
    ]
    assert riddles == []


def test_files_beside_modules_are_packaged() -> None:
    """Stubs, templates and settings are installed with the modules that read them."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    for package in ("metastore_client", "mutation_api"):
        beside = {
            path.relative_to(ROOT / package)
            for path in (ROOT / package).rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc", ".md")
        }
        patterns = [each.strip() for each in setup["options.package_data"][package].split(",")]
        packaged = {
            path.relative_to(ROOT / package)
            for pattern in patterns
            for path in (ROOT / package).glob(pattern)
        }
        assert beside and beside <= packaged, sorted(map(str, beside - packaged))
