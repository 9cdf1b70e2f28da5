"""What is done to a source's table besides changing its rows: Hive ends up equal, or the extraction refuses.

A refusal names a way on. The test follows it, and then both sides are equal. No statement of the application
fails meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.update.settings import ObjectNames
from mutation_api.errors import CaptureError, RecordLayoutError, SourcePositionError
from tests.integration.update.altered_source_cases import BROUGHT_BACK, CASES, REPAIR, Case
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either_engine")]

REFUSALS = (CaptureError, RecordLayoutError, SourcePositionError)


def _check(shop: Shop, case: Case, columns: tuple[ColumnInfo, ...]) -> None:
    """Both sides have the same rows."""
    first, *others = [each.name for each in columns]
    expected = shop.source.rows(f"SELECT {', '.join([case.shown or first, *others])} FROM orders")
    found = [tuple(row.values()) for row in shop.rows()]
    assert sorted(found, key=str) == sorted(expected, key=str)


def _named(text: str, names: ObjectNames) -> str:
    return text.replace("$TRIGGER", names.capture).replace("$LOG", names.log)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("source", "case"),
    [
        pytest.param(
            kind,
            case,
            id=f"{kind}: {case.name}",
            marks=[pytest.mark.server(case.server)] if case.server else [],
        )
        for kind in KINDS
        for case in CASES[kind]
    ],
    indirect=["source"],
)
def test_rows_are_equal_or_the_extraction_refuses_with_a_way_on(
    source: Source, case: Case, tmp_path: Path
) -> None:
    """Equal at once, or refused with nothing written, and equal after the way on."""
    source.run(*case.create)
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    columns = case.columns
    shop = Shop(source, metastore, "default", columns, bucketed_by=columns[0].name)
    names = shop.enable().settings.names
    shop.extract()
    _check(shop, case, columns)
    before = shop.rows()
    source.run(*[_named(text, names) for text in case.statements])
    if case.refusal:
        with pytest.raises(REFUSALS, match=case.refusal) as caught:
            shop.extract()
        assert shop.rows() == before
        metastore.set_columns("default", "orders", (*columns, *case.adds))
        columns = (*columns, *case.adds)
        source.run(*case.way_on)
        if case.refusal in (REPAIR, BROUGHT_BACK):
            assert "update repair --table default.orders" in str(caught.value)
            shop.repair()
    shop.extract()
    _check(shop, case, columns)
    source.run("DELETE FROM orders WHERE v = 9", "UPDATE orders SET v = 10 WHERE v = 1")
    shop.extract()
    _check(shop, case, columns)
    assert shop.extract().ingested.position is None
    shop.disable()
    assert source.objects() == []
