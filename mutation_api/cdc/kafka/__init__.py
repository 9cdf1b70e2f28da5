"""Topics of Kafka as the place of a log of messages; what the messages mean is not known here.

A run takes the end of each partition once, and reads from the watermark to there. The messages are written to
files, which this process or Spark's tasks read as they read files of messages. The modules:

=============  =======================================================================================
``topics``     ``KafkaTopics``, which users name
``broker``     what is said to the brokers, by confluent-kafka
``registry``   what is said to a schema registry, by the same
``offsets``    from where to where a run reads; what is refused. Pure
``spool``      the files of messages, and reading them
=============  =======================================================================================
"""
