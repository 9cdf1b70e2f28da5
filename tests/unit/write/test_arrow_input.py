"""Whatever speaks Arrow is read; everything else is told what to do."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.write.arrow_input import arrow_reader

TABLE = pa.table({"id": [1, 2], "msg": ["a", None]})


class Stream:
    """An object of another library with the stream interface only."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A table's."""
        return TABLE.__arrow_c_stream__(requested_schema)


class Batch:
    """An object of another library with the array interface only."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """A batch's."""
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [TABLE, TABLE.to_reader(), TABLE.to_batches()[0], TABLE.to_pandas(), Stream(), Batch()],
    ids=lambda each: type(each).__name__,
)
def test_what_speaks_arrow_is_read(data: object) -> None:
    """Each gives the same rows."""
    assert arrow_reader(data, "it").read_all().to_pylist() == TABLE.to_pylist()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ([{"id": 1}], "an object of type list cannot be read as Arrow"),
        (None, "an object of type NoneType cannot be"),
        (
            pa.chunked_array([[1]]),
            "an object of type pyarrow.lib.ChunkedArray holds no rows of named columns",
        ),
        (pa.array([1]), "an object of type pyarrow.lib.Int64Array holds no rows of named columns"),
        (TABLE.to_pandas()["id"], "an object of type pandas.core.series.Series cannot be read as Arrow"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_does_not_is_named(data: object, shown: str) -> None:
    """Its role, its type, and what can be given."""
    with pytest.raises(RecordLayoutError, match=f"table db.t: the change set: {shown}"):
        arrow_reader(data, "table db.t: the change set")


def test_an_error_of_the_source_keeps_its_class() -> None:
    """A reader of pyarrow is not wrapped once more."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ZeroDivisionError

    reader = arrow_reader(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), "it")
    with pytest.raises(ZeroDivisionError):
        reader.read_all()


@pytest.mark.parametrize(
    "values",
    [[Decimal("1.5"), "2.5"], ["1.5", Decimal("2.5")], [datetime.date(2024, 5, 1), "x"], [[1], {"a": 1}]],
    ids=["decimal-text", "text-decimal", "date-text", "list-dict"],
)
def test_values_of_several_types_are_no_column(values: list[object]) -> None:
    """The column and pyarrow's reason are named; values of one type are taken."""
    frame = pd.DataFrame({"id": [1, 2, 3], "total": [*values, None]})
    with pytest.raises(
        RecordLayoutError,
        match=r"^it: an object of type pandas.*DataFrame has a column total whose values cannot be converted "
        r"to one Arrow type: [^(].*\. Give all its values one type",
    ):
        arrow_reader(frame, "it")
    mended = frame.assign(total=[values[0], values[0], None])
    assert arrow_reader(mended, "it").read_all().column("total").to_pylist() == mended["total"].to_list()


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (pd.DataFrame({"id": [2**70, 1]}), "int too large"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), r"\['id', 'id'\]"),
    ],
    ids=["long-integer", "doubled"],
)
def test_frames_that_pyarrow_does_not_take(frame: pd.DataFrame, shown: str) -> None:
    """The same error class as for every other data."""
    with pytest.raises(RecordLayoutError, match=f"DataFrame cannot be converted to Arrow: .*{shown}"):
        arrow_reader(frame, "it")
