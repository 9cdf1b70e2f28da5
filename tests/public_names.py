"""The public names as text: what users may build on, with signatures, one a line.

    python -m tests.public_names > tests/golden/public_names.txt

A line that changes or goes is a change for users and belongs into CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import metastore_client
import mutation_api
import mutation_api.cdc
import mutation_api.upkeep
from mutation_api.merge.clauses import MergeOptions

FRONT_DOORS = (mutation_api, mutation_api.cdc, mutation_api.upkeep, metastore_client)


def public_names() -> list[str]:
    """Lines ``package.name(signature)``, of classes also their public methods and fields; sorted by name."""
    return [line for door in FRONT_DOORS for name in sorted(door.__all__) for line in _lines(door, name)]


def _lines(door: ModuleType, name: str) -> Iterator[str]:
    value = getattr(door, name)
    full_name = f"{door.__name__}.{name}"
    if inspect.isclass(value):
        yield f"{full_name}({', '.join(base.__name__ for base in value.__bases__)})"
        yield from (f"    {line}" for line in _members(value))
    elif callable(value):
        yield f"{full_name}{_signature(value)}"
    else:
        yield f"{full_name}: {type(value).__name__}"


def _members(value: type) -> Iterator[str]:
    if issubclass(value, enum.Enum):
        yield ", ".join(value.__members__)
        return
    if "__init__" in vars(value) or dataclasses.is_dataclass(value):
        yield f"__init__{_signature(value)}"
    for name, member in sorted(vars(value).items()):
        if name.startswith("_"):
            continue
        function = getattr(member, "__func__", member)
        if isinstance(member, property):
            yield f"{name} -> {inspect.get_annotations(member.fget).get('return')}"
        elif inspect.isfunction(function):
            yield f"{name}{_signature(function)}"


def _signature(value: object) -> str:
    """Without addresses of objects that are defaults, and with the options that a TypedDict names."""
    text = re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))  # type: ignore[arg-type]
    options = str(inspect.signature(MergeOptions)).removeprefix("(").removesuffix(") -> None")
    return text.replace(
        "**options: 'Unpack[MergeOptionsDict]'", options if " *, " in text else f"*, {options}"
    )


if __name__ == "__main__":
    print("\n".join(public_names()))
