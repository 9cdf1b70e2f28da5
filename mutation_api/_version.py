"""The version of this package; setup.cfg is where it is set."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("hive-mutation-api")
