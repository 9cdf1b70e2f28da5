"""Who may import whom; read from the source, so that no import is missed because it was not run."""

from __future__ import annotations

import ast
import functools
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OPEN_TO_ALL = {
    "metastore_client.model",
    "metastore_client.valid_ids",
    "mutation_api._version",
    "mutation_api.errors",
}

BELOW: dict[str, tuple[str, ...]] = {
    "metastore_client": (),
    "mutation_api.errors": ("metastore_client.errors",),
    "mutation_api.format": (),
    "mutation_api.storage": (
        "metastore_client.delegation_token",
        "metastore_client.errors",
        "metastore_client.hive_site",
    ),
    "mutation_api.table": ("format", "storage.location", "metastore_client.partition_name"),
    "mutation_api.orc": ("orc.format.checked_file",),
    "mutation_api.orc.format": ("format", "storage"),
    "mutation_api.orc.write": ("format", "storage", "table.acid_table", "orc.format"),
    "mutation_api.orc.read": ("format", "storage", "table", "orc.format"),
    "mutation_api.read": ("format", "storage", "table", "orc"),
    "mutation_api.transaction": ("format", "storage", "table", "orc", "read", "metastore_client"),
    "mutation_api.write": ("format", "storage", "table", "orc", "read", "transaction.manifest"),
    "mutation_api.upkeep": ("format", "storage", "table", "orc", "read", "transaction", "metastore_client"),
    "mutation_api.spark": (
        "format",
        "storage",
        "table",
        "orc",
        "read",
        "transaction.manifest",
        "write",
        "upkeep.create_acid_table",
        "metastore_client.client",
        "metastore_client.java",
    ),
    "mutation_api.merge": ("format", "storage", "table", "orc", "read", "write", "spark"),
    "mutation_api.hive": (
        "format",
        "storage",
        "table",
        "orc",
        "read",
        "transaction",
        "write",
        "upkeep",
        "merge",
        "spark.frame_table",
        "metastore_client",
    ),
    "mutation_api.cdc": (
        "format",
        "storage",
        "table",
        "orc",
        "read",
        "transaction",
        "write",
        "upkeep",
        "spark",
        "merge",
        "hive",
        "metastore_client",
    ),
    "mutation_api.cli": ("mutation_api", "metastore_client"),
    "mutation_api": ("mutation_api", "metastore_client"),
    "judges": ("metastore_client.java",),
}
"""Room -> what it may import besides itself and OPEN_TO_ALL; names without a package are of ``mutation_api``.

Of several rooms that a module is in, the longest name counts.
"""

ALLOWED = {
    room: {
        name if name.startswith(("mutation_api", "metastore_client")) else f"mutation_api.{name}"
        for name in names
    }
    for room, names in BELOW.items()
}

ROOMS_AT_MOST, MODULES_AT_MOST = 13, 441
"""Directories of ``mutation_api``, and modules of both packages without generated ones."""

LOCAL_PATHS_IN = ("mutation_api.cdc.source_url",)

REGISTRIES = (
    "mutation_api.cdc.update.database",
    "mutation_api.cli.engine_arguments",
    "mutation_api.cli.ingest.command",
    "mutation_api.cli.main",
    "mutation_api.cli.update.command",
    "mutation_api.storage.connect",
)
"""Modules that import one of several modules of one kind by the name that a user gives."""

JVM_ONLY_IN = "mutation_api.spark.jvm"
JVM_NAMES = frozenset(("_gateway", "_jdf", "_jsc", "_jsparkSession", "_jvm"))

SPARK_ONLY_IN = (
    "mutation_api.spark",
    "mutation_api.merge.change_files",
    "mutation_api.merge.column_files",
    "mutation_api.merge.csv_files",
    "mutation_api.merge.file_rules",
    "mutation_api.merge.json_files",
    "mutation_api.merge.row_files",
    "mutation_api.merge.spark_acting",
    "mutation_api.merge.spark_buckets",
    "mutation_api.merge.spark_columns",
    "mutation_api.merge.spark_diff",
    "mutation_api.merge.spark_evaluator",
    "mutation_api.merge.spark_expressions",
    "mutation_api.merge.spark_history",
    "mutation_api.merge.spark_matching",
    "mutation_api.merge.spark_merge",
    "mutation_api.merge.spark_plan",
    "mutation_api.merge.spark_rules",
    "mutation_api.merge.spark_translation",
    "mutation_api.cdc.batch_actions",
    "mutation_api.cdc.changes_source",
    "mutation_api.cdc.hive_sink",
    "mutation_api.cdc.reduce",
    "mutation_api.cdc.spark_changes",
    "mutation_api.cdc.spark_engine",
    "mutation_api.cli",
)


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _sources() -> dict[str, Path]:
    paths = [
        path for package in ("metastore_client", "mutation_api", "judges") for path in _python(ROOT / package)
    ]
    return {_module(path): path for path in paths}


def _python(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if "_thrift" not in path.parts]


SOURCES = _sources()


@functools.cache
def _imports(tree: ast.AST) -> frozenset[str]:
    """Full names of imported modules; ``from package import module`` counts as the module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in names if name in SOURCES} or {node.module}
    return frozenset(found)


def _registered(module: str) -> set[str]:
    """Modules of ours that a registry may import: those whose names have the form of its f-string."""
    forms = [
        "".join(
            re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+" for p in node.args[0].values
        )
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "import_module"
        and isinstance(node.args[0], ast.JoinedStr)
    ]
    return {each for each in SOURCES for form in forms if re.fullmatch(form, each)}


def _layer(module: str) -> str:
    return max((layer for layer in ALLOWED if _is_in(module, layer)), key=len)


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _is_allowed(module: str, imported: str) -> bool:
    layer = _layer(module)
    if imported in OPEN_TO_ALL or layer == _layer(imported):
        return True
    return any(_is_in(imported, allowed) for allowed in ALLOWED[layer])


def _of_types(module: str) -> set[str]:
    """Imports that only type checkers make."""
    blocks = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.If)]
    return {
        each
        for block in blocks
        if isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for each in _imports(block)
    }


def _imports_in_functions(module: str) -> list[ast.Import | ast.ImportFrom]:
    return [
        node
        for function in ast.walk(_tree(module))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def _later(module: str) -> set[str]:
    """Imports that are made when a function is called."""
    return {each for node in _imports_in_functions(module) for each in _imports(node)}


@functools.cache
def _tree(module: str) -> ast.AST:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def test_there_are_sources() -> None:
    """The rules below are applied to something."""
    assert len(SOURCES) > 30


def test_modules_import_only_from_layers_below() -> None:
    """A module imports its own layer and the layers that the table above gives it, nothing else of ours."""
    refused = [
        f"{module} imports {each}"
        for module in SOURCES
        for each in sorted(_imports(_tree(module)) | _registered(module))
        if each.split(".")[0] in ("metastore_client", "mutation_api") and not _is_allowed(module, each)
    ]
    assert refused == []


def test_pyspark_stays_in_its_layer() -> None:
    """Only the Spark job, changes, one engine of inputs and commands import pyspark; all else works without
    it, but for its types.
    """
    elsewhere = [each for each in SOURCES if not any(_is_in(each, layer) for layer in SPARK_ONLY_IN)]
    refused = [
        f"{module} imports {each}"
        for module in elsewhere
        for each in _imports(_tree(module)) - _of_types(module) - _later(module)
        if _is_in(each, "pyspark")
    ]
    assert elsewhere and refused == []


def test_one_module_knows_the_jvm() -> None:
    """What PySpark keeps to itself may change with each release, and Spark Connect has none of it."""
    found = {
        module
        for module in SOURCES
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Attribute) and node.attr in JVM_NAMES
    }
    assert found == {JVM_ONLY_IN}


def test_an_import_in_a_function_has_its_reason_beside_it() -> None:
    """All others stand at the top of their file, where a reader finds them."""
    silent = [
        f"{module}:{node.lineno}"
        for module in SOURCES
        for node in _imports_in_functions(module)
        if "  # " not in SOURCES[module].read_text(encoding="utf-8").splitlines()[node.lineno - 1]
    ]
    assert silent == []


def test_modules_of_ours_are_imported_by_name_only_by_registries() -> None:
    """Of commands, engines, storages and databases, each in the registry's own room; mypy sees all others."""
    found = {module: _registered(module) for module in SOURCES if _registered(module)}
    assert found.keys() == set(REGISTRIES)
    assert all(len(modules) > 1 for modules in found.values())
    assert all(_layer(each) == _layer(module) for module, modules in found.items() for each in modules)


def test_inputs_open_files_by_the_storages() -> None:
    """They know no paths of this machine, but for links and for the folder for temporary files."""
    inputs = [
        each
        for each in SOURCES
        if _is_in(each, "mutation_api.cdc") and not _is_in(each, "mutation_api.cdc.update")
    ]
    opened = [
        f"{module}:{node.lineno}"
        for module in inputs
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.Name) and node.id == "open"
    ]
    local = {each for each in inputs if _imports(_tree(each)) & {"glob", "os", "pathlib", "shutil"}}
    assert opened == []
    assert local == set(LOCAL_PATHS_IN)


def test_no_cycles() -> None:
    """The imports of our modules form no cycle."""
    graph = {module: (_imports(_tree(module)) & SOURCES.keys()) - {module} for module in SOURCES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"imports go round: {' -> '.join(error.args[1])}")


def test_the_tree_stays_small() -> None:
    """A newcomer can hold it: few rooms, and modules of a size that is worth opening."""
    rooms = {path.parent.name for path in (ROOT / "mutation_api").glob("*/__init__.py")}
    modules = [module for module in SOURCES if not _is_in(module, "judges")]
    assert len(rooms) <= ROOMS_AT_MOST, sorted(rooms)
    assert len(modules) <= MODULES_AT_MOST


def test_rooms_form_no_cycle() -> None:
    """Rooms stand on one another, so that each can be understood from those below it."""
    graph = {
        room: {
            _room(imported)
            for module in SOURCES
            if _room(module) == room
            for imported in (_imports(_tree(module)) & SOURCES.keys()) | _registered(module)
        }
        - {room}
        for room in {_room(module) for module in SOURCES}
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"rooms import each other: {' -> '.join(error.args[1])}")


def _room(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "mutation_api" else parts[0]
