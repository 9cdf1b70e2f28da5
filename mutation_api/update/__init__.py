"""Incremental update: changes of a table in a relational database, captured there and applied to Hive's
table.
"""
