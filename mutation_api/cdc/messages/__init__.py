"""Logs of JSON and Avro messages: their formats, order and values."""
