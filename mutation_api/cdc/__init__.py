"""Change sources: logs of operations as written by change data capture tools, and the code that applies them.

:func:`mutation_api.cdc.ingest` brings tables up to the end of a source, exactly once, with Spark or in this
process. Spark reads a :class:`ChangeSource`; this process reads a :class:`LocalChangeSource`. All sources of
this package are both:

===================  =========================  ===============================================
source               arguments that name it     what it is
===================  =========================  ===============================================
``CanalSource``      ``files``, ``name``        flat messages of Canal or TiCDC
``CollectorSource``  ``files``, ``name``        raw files of the binlog collector, for one table
``DebeziumSource``   ``files``, ``name``        messages of Debezium's connectors
``MaxwellSource``    ``files``, ``name``        messages of Maxwell's daemon
``MySqlSource``      ``address``, ``database``  a MySQL or MariaDB server
``TungstenSource``   ``staging``, ``service``   staging files of Tungsten Replicator
===================  =========================  ===============================================

The arguments that name the log come first; all others are keyword-only. Messages are read from files, or from
Kafka if ``files`` is a ``KafkaTopics``. Kafka needs the packages of ``hive-mutation-api[kafka]``, messages in
Avro need those of ``hive-mutation-api[avro]``, and MySqlSource and MySqlAddress need those of
``hive-mutation-api[mysql]``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
