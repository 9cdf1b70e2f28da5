"""Only one module depends on Spark's variants, so that another way to parse JSON can replace it."""

from __future__ import annotations

import ast
from pathlib import Path

import mutation_api.inputs

FUNCTIONS = {
    "is_variant_null",
    "parse_json",
    "schema_of_variant",
    "to_variant_object",
    "try_parse_json",
    "try_variant_get",
    "variant_get",
}


def test_one_module_knows_variants() -> None:
    """No other one calls Spark's functions of them."""
    package = Path(mutation_api.inputs.__file__).parent
    found = {
        path.name
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in FUNCTIONS
    }
    assert found == {"variants.py"}
