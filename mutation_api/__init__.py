"""Atomic change sets over Hive ACID tables.

Everything a user needs is a name of this package; :file:`__init__.pyi` lists the names and their modules. A
module is imported when a name of it is first used, so ``import mutation_api`` needs neither pyspark nor
thrift, and costs no more than a script that prints its help should wait for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
