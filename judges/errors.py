"""Errors of the judges.

::

    JudgeError               a judge could not start, answer in time or execute a request
    ├─ HiveError             Hive refused or failed; the message is Hive's own
    ├─ TrinoError            Trino refused or failed; the message is Trino's own
    └─ ReadersDisagreeError  Hive's two readers give different rows of one directory
"""

from __future__ import annotations


class JudgeError(Exception):
    """A judge could not start, did not answer in time, or ended."""


class HiveError(JudgeError):
    """Hive refused a request, or the request failed."""


class TrinoError(JudgeError):
    """Trino refused a statement, or the statement failed."""


class ReadersDisagreeError(JudgeError):
    """The row reader and the vectorised reader of Hive give different rows of one directory."""
