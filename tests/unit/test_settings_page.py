"""docs/settings.md names what can be set, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from metastore_client import hive_site
from metastore_client.transport import security
from mutation_api import LocalOptions, MutatorClientBuilder, WriterOptions, connect
from mutation_api.spark.job import FEW_BYTES, FEW_BYTES_DEFAULT
from mutation_api.write.local_plan import MEMORY_BYTES_DEFAULT
from tests.support.doc_blocks import DOCS, ROOT

PAGE = (DOCS / "settings.md").read_text(encoding="utf-8")
OTHER_PAGES = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("connecting.md", "storage.md"))
FIRST_CELLS = re.compile(r"^\| (`.+?) \|", re.MULTILINE)
KEY = re.compile(r"(?:hive|metastore|hadoop\.rpc)(?:\.\w+)+")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|TMPDIR")
OF_SPARK = {
    "CONTAINER_ID": "set by YARN",
    "PYSPARK_DRIVER_PYTHON": "set for Spark, not read",
    "PYSPARK_GATEWAY_PORT": "set by Spark",
    "PYSPARK_PYTHON": "set for Spark, not read",
    "PYSPARK_SUBMIT_ARGS": "set for Spark",
    "SPARK_YARN_STAGING_DIR": "set by Spark",
    "HDFS_DELEGATION_TOKEN": "a kind of token, no variable",
}
"""Names in the code that nobody sets by hand, and why."""
READ_BY_PYTHON = {"TMPDIR", "KRB5CCNAME", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE"}
"""Variables that libraries read."""


def section(title: str) -> str:
    """The text of a section."""
    return PAGE.partition(f"\n## {title}")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    """The names in the first cells of tables."""
    return {name for cell in FIRST_CELLS.findall(text) for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("title", "options"),
    [("Written files", WriterOptions), ("Local engine", LocalOptions)],
)
def test_each_option_is_named(title: str, options: Any) -> None:
    """Fields of the dataclasses."""
    assert named(section(title)) == {field.name for field in dataclasses.fields(options)}


def test_defaults_are_those_of_the_code() -> None:
    """Sizes that the page spells out."""
    options = WriterOptions()
    for title, name, size in (
        ("Written files", "sort_memory_bytes", options.sort_memory_bytes),
        ("Written files", "stripe_bytes", options.stripe_bytes),
        ("Spark", FEW_BYTES, FEW_BYTES_DEFAULT),
        ("Local engine", "memory_bytes", MEMORY_BYTES_DEFAULT),
    ):
        shown = f"{size >> 30} GiB" if size >= 1 << 30 else f"{size >> 20} MiB"
        assert f"| `{name}` | {shown} |" in section(title)
    assert f"| `batch_rows` | {options.batch_rows:,} |" in PAGE


def test_each_argument_of_a_connection_is_named() -> None:
    """Those of ``connect``, which the builder has as methods."""
    arguments = named(section("Connection"))
    assert arguments == set(inspect.signature(connect).parameters)
    assert all(hasattr(MutatorClientBuilder, name) for name in arguments - {"local"})


def environment_names() -> Iterator[str]:
    """Texts that look like variables, in modules that read the environment or give a variable its name."""
    for package in ("metastore_client", "mutation_api"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if re.search(r"\benviron\b|^PASSWORD_VARIABLE = ", text, re.M) and "_thrift" not in path.parts:
                yield from _texts(text, path)


def _texts(source: str, path: Path) -> Iterator[str]:
    tree = ast.parse(source, str(path))
    offered = {
        text.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for text in ast.walk(node)
        if isinstance(text, ast.Constant)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text not in offered and VARIABLE.fullmatch(text):
            yield text


def test_each_variable_is_named() -> None:
    """What the code reads, and nothing else."""
    read = set(environment_names())
    assert set(OF_SPARK) <= read
    assert named(section("Environment variables")) - READ_BY_PYTHON == read - set(OF_SPARK) - READ_BY_PYTHON


def keys_of(module: Any) -> set[str]:
    """Keys of ``hive-site.xml`` among a module's constants."""
    values = [value for name, value in vars(module).items() if name.isupper()]
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return {each for each in flat if isinstance(each, str) and KEY.fullmatch(each)}


def test_each_key_of_a_client_is_named() -> None:
    """Here, or where security is explained."""
    ours = keys_of(hive_site) | keys_of(security)
    assert len(ours) > 15
    here = named(section("In `hive-site.xml`"))
    assert {key for key in ours if f"`{key}" not in PAGE + OTHER_PAGES} == set()
    mentioned = {key for key in here if key not in ours}
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "mutation_api").rglob("*.py"))
    assert [key for key in sorted(mentioned) if f'"{key}"' not in code] == []


def test_each_key_of_a_storage_exists() -> None:
    """What the page of storage names is read."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in [*(ROOT / "mutation_api").rglob("*.py"), *(ROOT / "metastore_client").rglob("*.py")]
    )
    names = re.findall(r"`((?:fs|dfs|google|hadoop)\.[a-zA-Z0-9.]+)`", OTHER_PAGES)
    assert len(names) > 10
    assert [name for name in names if not is_read(name, code)] == []


def is_read(name: str, code: str) -> bool:
    """Whether the code has a name as a text, whole or in two parts."""
    dots = [at.end() for at in re.finditer(r"\.", name)]
    parts = ((name[:dot], name[dot:]) for dot in dots)
    return f'"{name}"' in code or any(f'"{a}"' in code and f'"{b}"' in code for a, b in parts)
