"""Packages that only some forms of rows need; imported when such a form is asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

from mutation_api.errors import ConfigurationError

__all__ = ["optional_package"]


def optional_package(name: str, what: str) -> ModuleType:
    """An installed package, which is also an extra of ours.

    Args:
        name: the package, ``polars``.
        what: who needs it, for the message: ``to_polars()``.

    Raises:
        ConfigurationError: it is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigurationError(
            f"{what} needs the package {name}: pip install hive-mutation-api[{name}] ({error})"
        ) from error
