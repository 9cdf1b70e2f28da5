"""Foreign keys that change rows, from the text of SHOW CREATE TABLE."""

from __future__ import annotations

from mutation_api.cdc.update.mysql_capture import changing_foreign_keys

CREATE = """CREATE TABLE `orders` (
  `id` int(11) NOT NULL COMMENT 'CONSTRAINT `a` FOREIGN KEY ON DELETE CASCADE',
  `p` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`),
  CONSTRAINT `kept` FOREIGN KEY (`ON DELETE CASCADE`) REFERENCES `p` (`id`) ON UPDATE NO ACTION,
  CONSTRAINT `it's ON` FOREIGN KEY (`p`) REFERENCES `o``p` (`id`) ON DELETE SET NULL ON UPDATE CASCADE,
  CONSTRAINT "ansi" FOREIGN KEY ("p") REFERENCES "p" ("id") ON DELETE CASCADE
) ENGINE=InnoDB"""


def test_rules_that_change_rows_are_found() -> None:
    """Names and comments are not rules."""
    assert changing_foreign_keys(CREATE) == [
        ("it's ON", "ON DELETE SET NULL ON UPDATE CASCADE"),
        ("ansi", "ON DELETE CASCADE"),
    ]
