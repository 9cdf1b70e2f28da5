"""Hive types, and the conversion of values to and between them. Pure."""
