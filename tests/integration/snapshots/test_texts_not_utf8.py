"""Texts whose bytes are not UTF-8, which Hive loads from files in other encodings, and shows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.orc.read.type_changes import NOT_UTF8
from mutation_api.upkeep.verify.verify import verify_table

pytestmark = pytest.mark.slow

LATIN_1 = "Zähler"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
BUCKETS = "CLUSTERED BY (id) INTO 1 BUCKETS"
"""Without these Hive 2.3 has no transactional tables."""


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "value"), [("string", "b"), ("array<string>", "array(b)"), ("map<int,string>", "map(1, b)")]
)
def test_texts_that_are_not_utf_8(
    hive_line: HiveJudge, line_database: str, tmp_path: Path, kind: str, value: str
) -> None:
    """Refused where they are read, by the file's name; other columns are read; the file is not damaged."""
    name = f"{line_database}.n{kind[:3]}"
    (tmp_path / "lines.csv").write_bytes(f"1,{LATIN_1}\n2,x\n".encode("latin-1"))
    delimited = "ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' STORED AS TEXTFILE"
    hive_line.sql(f"CREATE TABLE {name}_lines (a int, b string) {delimited}")
    hive_line.sql(f"LOAD DATA LOCAL INPATH '{tmp_path}/lines.csv' INTO TABLE {name}_lines")
    hive_line.sql(f"CREATE TABLE {name} (id int, t {kind}, n int) {BUCKETS} {ACID}")
    hive_line.sql(f"INSERT INTO {name} SELECT a, {value}, 0 FROM {name}_lines")
    assert "\ufffdhler" in str(hive_line.sql(f"SELECT t FROM {name}"))
    with open_client(hive_line.uri) as metastore, connect(metastore) as hive:
        with hive.snapshot(name) as snapshot:
            table = snapshot.table(name)
            assert sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist()) == [1, 2]
            with pytest.raises(RecordValueError, match=NOT_UTF8) as error:
                table.scan().to_arrow()
        report = verify_table(metastore, name)
        with hive.transaction(name) as transaction:  # reads the rows that it changes
            source = pa.table({"id": [2], "n": [7]}, pa.schema({"id": pa.int32(), "n": pa.int32()}))
            transaction.table(name).merge(source, on=["id"]).when_matched_update({"n": "n"}).execute()
    assert hive_line.sql(f"SELECT id, n FROM {name} ORDER BY id") == [[1, 0], [2, 7]]
    assert "\ufffdhler" in str(hive_line.sql(f"SELECT t FROM {name} WHERE id = 1"))
    assert "bucket_0000" in str(error.value)
    assert f"table {name}, column t" in str(error.value)
    assert report.is_sound
    assert "not-read-here" in {each.rule_name for each in report.findings}
