"""Everything said to a Hive metastore; knows nothing of Spark, ORC or mutations.

with metastore_client.connect("thrift://host:9083") as client:
    print(client.get_table("default", "t"))

A module is imported when a name of it is first used; :file:`__init__.pyi` lists the names and their modules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
