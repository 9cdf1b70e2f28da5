"""A program that says what this pyspark has; it starts no JVM. ``test_names.py`` runs it.

It imports every module of the product, and holds every call of a function of ``pyspark.sql.functions`` in
them against the function's parameters. It prints one line of JSON.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pyspark.sql.functions as sf
from pyspark import RDD, SparkContext, TaskContext
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession, Window, types

import mutation_api

CLASSES = (
    RDD,
    SparkContext,
    TaskContext,
    Column,
    DataFrame,
    GroupedData,
    SparkSession,
    Window,
    types.DataType,
)


def modules() -> Iterator[str]:
    """Names of the product's modules."""
    for found in pkgutil.walk_packages(mutation_api.__path__, "mutation_api."):
        if not found.ispkg and not found.name.endswith("__main__"):
            yield found.name


def wrong_calls(name: str, source: Path) -> Iterator[str]:
    """Calls ``sf.function(…)`` that this pyspark would refuse; those with starred arguments are left out."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) != "sf":
            continue
        if not hasattr(sf, node.attr):
            yield f"{name}, line {node.lineno}: there is no sf.{node.attr}"
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sf."):
            function = getattr(sf, ast.unparse(node.func).removeprefix("sf."), None)
            is_open = any(isinstance(each, ast.Starred) for each in node.args)
            if function is None or is_open or any(each.arg is None for each in node.keywords):
                continue
            try:
                inspect.signature(function).bind(*node.args, **{str(each.arg): 0 for each in node.keywords})
            except TypeError as error:
                yield f"{name}, line {node.lineno}: {ast.unparse(node)}: {error}"


def main() -> None:
    """Import, look and print."""
    names = list(modules())
    wrong: list[str] = []
    for name in names:
        module = importlib.import_module(name)
        assert module.__file__ is not None
        wrong += wrong_calls(name, Path(module.__file__))
    members = {each.__name__: dir(each) for each in CLASSES}
    found = {"spark": pyspark.__version__, "modules": len(names), "wrong": wrong, "members": members}
    print(json.dumps({**found, "types": dir(types), "functions": dir(sf)}))


if __name__ == "__main__":
    main()
