"""Are the files of a table sound? Finds what would fail, lose or double rows in one of Hive's readers.

:mod:`.finding` says what is looked for, :mod:`.verify` does it: first directories, then each file alone, then
the files of each bucket together, and last what the metastore says of the rows.
"""
