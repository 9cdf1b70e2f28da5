"""Atomic change sets over Hive ACID tables.

This package exports every name that users need; :file:`__init__.pyi` lists the names and their modules. A
module is imported when one of its names is first used. So ``import mutation_api`` needs neither pyspark nor
thrift, and does not slow down a script that only prints its help.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
