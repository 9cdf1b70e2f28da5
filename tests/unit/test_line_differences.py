"""Only two modules know how the lines of Hive differ; all others ask a property or a capability.

Read from the source, so that no comparison is missed because it was not run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WHO_KNOWS = {"mutation_api/format/layout.py", "metastore_client/capabilities.py"}
SOURCES = {
    str(path.relative_to(ROOT)): path
    for package in ("metastore_client", "mutation_api")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "_thrift" not in path.parts
}
VERSION_TEXT = re.compile(
    r"(?:hive[ _-]?)?v?[234](?:\.(?:\d+|x))+|hive[ _-]?[234]|v[12][-_]\w+", re.IGNORECASE
)


def is_about_a_line(node: ast.expr) -> bool:
    """A text that names a version, or the name of a server's line, which is for messages."""
    match node:
        case ast.Constant(value=str(text)):
            return VERSION_TEXT.fullmatch(text.strip()) is not None
        case ast.Attribute(attr="line"):
            return True
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(map(is_about_a_line, items))
    return False


def findings(tree: ast.AST) -> Iterator[str]:
    """LocationsLike that decide by a line or version instead of a property."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="AcidVersion"), attr=name) if name.isupper():
                yield f"line {node.lineno}: names AcidVersion.{name}"
            case ast.Compare(left=left, comparators=others) if any(map(is_about_a_line, [left, *others])):
                yield f"line {node.lineno}: compares {ast.unparse(node)}"
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=arguments) if any(
                map(is_about_a_line, arguments)
            ):
                yield f"line {node.lineno}: compares {ast.unparse(node)}"
            case ast.MatchValue(value=value) if is_about_a_line(value):
                yield f"line {node.lineno}: matches {ast.unparse(value)}"
            case ast.Subscript(slice=key) if is_about_a_line(key):
                yield f"line {node.lineno}: chooses by {ast.unparse(key)}"


@pytest.mark.thorough
def test_modules_ask_instead_of_comparing() -> None:
    """No module but those two compares versions, names a member of AcidVersion, or chooses by a line."""
    others = SOURCES.keys() - WHO_KNOWS
    found = [
        f"{name}, {finding}"
        for name in sorted(others)
        for finding in findings(ast.parse(SOURCES[name].read_text(encoding="utf-8")))
    ]
    assert others and found == []


def test_those_who_know_exist() -> None:
    """The two modules are where this test believes them to be, and say something."""
    known = {name: list(findings(ast.parse(SOURCES[name].read_text(encoding="utf-8")))) for name in WHO_KNOWS}
    assert known["mutation_api/format/layout.py"]


@pytest.mark.parametrize(
    "text",
    [
        "if table.version is AcidVersion.V1_LEGACY: pass",
        "if capabilities.version == '3.0': pass",
        "if hive.line in ('2.3', '3.1'): pass",
        "if server_version.startswith('4.1'): pass",
        "match judge.line:\n    case '4.1': pass",
        "answers[capabilities.line]",
        "if kind == 'v1-legacy': pass",
    ],
)
def test_what_is_not_allowed_is_found(text: str) -> None:
    """Each way to decide by a line is noticed."""
    assert len(list(findings(ast.parse(text)))) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "if table.version.uses_write_ids: pass",
        "if capabilities.has_write_ids: pass",
        "if table.bucketing_version == 2: pass",
        "if version is None or version == other.version: pass",
        "message = f'Hive {capabilities.line} has none'",
    ],
)
def test_what_is_allowed_is_not_found(text: str) -> None:
    """Properties, capabilities, a table's own properties, and messages."""
    assert list(findings(ast.parse(text))) == []
