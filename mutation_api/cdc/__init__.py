"""Change sources: logs of operations as tools for change data capture write them, and what applies them.

:func:`mutation_api.ingest` brings tables up to the end of a source, exactly once, by Spark or in this
process. A source is a :class:`ChangeSource` for the one and a :class:`LocalChangeSource` for the other; all
of ours are both:

===================  =========================  ===============================================
source               what names the log        what it is
===================  =========================  ===============================================
``CanalSource``      ``files``, ``name``        flat messages of Canal or TiCDC
``CollectorSource``  ``files``, ``name``        raw files of the binlog collector, of one table
``DebeziumSource``   ``files``, ``name``        messages of Debezium's connectors
``MaxwellSource``    ``files``, ``name``        messages of Maxwell's daemon
``MySqlSource``      ``address``, ``database``  a MySQL or MariaDB server
``TungstenSource``   ``staging``, ``service``   staging files of Tungsten Replicator
===================  =========================  ===============================================

The arguments that name the log come first; all others are given by name. Messages are in files, or ``files``
are ``KafkaTopics``, which need the package of ``hive-mutation-api[kafka]``, and for messages in Avro those of
``hive-mutation-api[avro]``. MySqlSource and MySqlAddress need those of ``hive-mutation-api[mysql]``.
"""
