"""Verifies the files of a table: finds damage that would make one of Hive's readers fail, or lose or
duplicate rows.

:mod:`.finding` contains the rules, :mod:`.verify` checks them: first the directories, then each file alone,
then the files of each bucket together, and finally the metastore's information about the rows.
"""
