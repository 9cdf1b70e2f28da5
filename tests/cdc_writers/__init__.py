"""Writers of change logs, one file per tool, each after the tool's documentation.

They take a history of row events and share nothing with the readers under test.
"""
