"""Whether a table is found sound, for tests that have just let Hive and us do something to it."""

from __future__ import annotations

from collections.abc import Collection

from metastore_client.client import MetastoreClient
from mutation_api.upkeep.verify.verify import VerifyReport, verify_table


def check_sound(metastore: MetastoreClient, full_name: str, known: Collection[str] = ()) -> VerifyReport:
    """Fail, with all findings, if anything is damaged; there may be notices.

    ``known``: the rules that Hive itself has violated.
    """
    report = verify_table(metastore, full_name)
    wrong = [each for each in report.damages if each.rule_name not in known]
    assert not wrong, "\n".join(map(str, report.findings))
    return report
