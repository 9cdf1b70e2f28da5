"""Logs of JSON messages: Debezium, Maxwell, Canal."""
