"""Whatever speaks Arrow is read; everything else is told what to do."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from mutation_api.errors import RecordLayoutError
from mutation_api.local.arrow_input import arrow_reader

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
