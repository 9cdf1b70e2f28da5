"""What a version of pyspark lacks is named in one module only: read from the source and from each pyspark."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judges.sparks import OTHERS, OWN, ROOT
from tests.integration.versions.test_spark_versions import program

pytestmark = pytest.mark.slow

PRODUCT = ROOT / "mutation_api"
VERSIONS = PRODUCT / "spark" / "versions.py"
OF_OTHERS = {"exists", "table", "name"}
"""Members of pyspark's classes that others have, too: paths, tables, and so on."""


def modules_with_spark() -> Iterator[tuple[Path, ast.Module]]:
    """The modules that import pyspark, but for the one for versions."""
    for path in sorted(PRODUCT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        imported += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        if path != VERSIONS and any(each.split(".")[0] == "pyspark" for each in imported):
            yield path, tree


def named(tree: ast.Module) -> Iterator[str]:
    """Attributes that a module reads, and names that it imports from pyspark."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            yield from (each.name for each in node.names)


def everything(said: dict[str, Any]) -> set[str]:
    """All names that a pyspark has."""
    return {
        *said["types"],
        *said["functions"],
        *(name for names in said["members"].values() for name in names),
    }


@pytest.fixture(scope="module")
def own() -> dict[str, Any]:
    """What the pyspark of all other tests has."""
    return json.loads(program(OWN, "names"))


@pytest.mark.long
@pytest.mark.parametrize("spark_version", OTHERS)
def test_a_version_has_what_all_modules_name(spark_version: str, own: dict[str, Any]) -> None:
    """Every module can be imported, every function is called as it has it, and what it lacks is not named."""
    said = json.loads(program(spark_version, "names"))
    assert said["spark"].startswith(f"{spark_version}.")
    assert said["modules"] == own["modules"] > 200
    assert said["wrong"] == own["wrong"] == []
    lacking = {name for name in everything(own) - everything(said) if not name.startswith("__")} - OF_OTHERS
    assert {"repartitionById"} <= lacking
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in modules_with_spark()
        for name in sorted(lacking & set(named(tree)))
    ]
    assert found == []


def test_no_other_module_asks_for_the_version() -> None:
    """Neither that of the package nor that of a session or context."""
    asking = {"__version__", "SPARK", "version"}
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path, tree in modules_with_spark()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in asking
        and ast.unparse(node.value).split(".")[-1]
        in ("pyspark", "spark", "context", "sparkContext", "versions")
    ]
    assert found == []
    imported = [path for path, tree in modules_with_spark() if {"__version__", "SPARK"} & set(named(tree))]
    assert imported == []
