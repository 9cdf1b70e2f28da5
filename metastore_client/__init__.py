"""A client for Hive metastores, independent of Spark, ORC and mutations.

with metastore_client.connect("thrift://host:9083") as client:
    print(client.get_table("default", "t"))

A module is imported at the first use of one of its names; :file:`__init__.pyi` lists the names and their
modules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
