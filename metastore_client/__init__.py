"""A client for Hive metastores that does not depend on Spark, ORC or change sets.

with metastore_client.open_client("thrift://host:9083") as client:
    print(client.get_table("default", "t"))

Each module is imported when one of its names is first used. :file:`__init__.pyi` lists the names and their
modules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
