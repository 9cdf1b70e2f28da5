"""Kafka topics as logs of messages; the format of the messages is defined elsewhere.

A run reads the end of each partition once, and then reads messages from the watermark to that end. It writes
the messages to files, which this process or Spark's tasks read like files of messages. The modules:

=============  =======================================================================================
``topics``     ``KafkaTopics``, which users create
``broker``     requests to the brokers, with confluent-kafka
``registry``   requests to a schema registry, with confluent-kafka
``offsets``    the offsets that a run reads, and the checks that refuse a log. Pure
``spool``      writing and reading the files of messages
=============  =======================================================================================

A change feed is sent to topics:

==================  ==================================================================================
``change_topics``   ``ChangeTopics``, which users create
``feed_producer``   the transactions of Kafka with messages and their position, with confluent-kafka
``feed_messages``   the messages: Debezium's envelopes, or lines of JSON. Pure
``connect_values``  values and their schemas, as Kafka Connect writes them. Pure
==================  ==================================================================================
"""
