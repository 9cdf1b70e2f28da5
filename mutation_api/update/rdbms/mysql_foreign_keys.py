"""Foreign keys of MySQL and MariaDB that change rows of their table. Pure.

They are read from SHOW CREATE TABLE, which SELECT on the table suffices for. The catalog
(REFERENTIAL_CONSTRAINTS) hides all of them from an account that may only read the table.
"""

from __future__ import annotations

import re

__all__ = ["changing_foreign_keys"]

_CONSTRAINT = re.compile(r'^\s+CONSTRAINT [`"](.*?)[`"] FOREIGN KEY (.*)$', re.MULTILINE)
_NAMES = re.compile(r'`(?:[^`]|``)*`|"(?:[^"]|"")*"')
_RULE = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def changing_foreign_keys(create: str) -> list[tuple[str, str]]:
    """Return the foreign keys by which a change of another table changes rows, each with its rules.

    Args:
        create: the text of SHOW CREATE TABLE.
    """
    found = [(match[1], _RULE.findall(_NAMES.sub("``", match[2]))) for match in _CONSTRAINT.finditer(create)]
    return [(name, " ".join(rules)) for name, rules in found if rules]
