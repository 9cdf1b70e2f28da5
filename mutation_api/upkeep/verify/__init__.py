"""Verifies the files of a table: finds what would make one of Hive's readers fail, lose or duplicate rows.

:mod:`.finding` has the rules, :mod:`.verify` checks them: first directories, then each file alone, then the
files of each bucket together, and last what the metastore reports about the rows.
"""
