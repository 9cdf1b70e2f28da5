"""The API of the local engine: tables as Arrow, in this process, without Spark or a JVM.

::

    with connect("thrift://host:9083") as hive, hive.transaction("sales.orders") as tx:
        orders = tx.table("sales.orders")
        orders.append(new_rows)
        dear = orders.scan(where=pc.field("price") > 100).to_arrow()
"""
