"""Whether a table is found sound, for tests that have just let Hive and us do something to it."""

from __future__ import annotations

from metastore_client.client import MetastoreClient
from mutation_api.upkeep.verify.verify import VerifyReport, verify_table


def check_sound(metastore: MetastoreClient, full_name: str) -> VerifyReport:
    """Fail, with all findings, if anything is damaged; there may be notices."""
    report = verify_table(metastore, full_name)
    assert report.is_sound, "\n".join(map(str, report.findings))
    return report
