"""The table of ``yarn_job``, and the rows that it has afterwards, as Hive reads them."""

from __future__ import annotations

from pathlib import Path

from judges.hive.judge import HiveJudge

JOB = Path(__file__).with_name("yarn_job.py")
QUERY_SECONDS = 400


def create_table(hive: HiveJudge, name: str) -> str:
    hive.sql(
        f"CREATE TABLE {name} (id bigint, msg string) PARTITIONED BY (ds string) CLUSTERED BY (id) "
        "INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
    )
    return name


def check_rows(hive: HiveJudge, table: str, rows: int) -> None:
    """Those that the job means, each once."""
    kept = [n for n in range(rows) if n % 3 != 1]
    news = [n for n in kept if n % 3 == 0]
    everything = [*kept, *range(rows, 2 * rows)]
    query = "SELECT count(*), count(DISTINCT id), sum(id), sum(if(msg = 'new', id, 0)) FROM "
    assert hive.sql(query + table, timeout_seconds=QUERY_SECONDS) == [
        [len(everything), len(everything), sum(everything), sum(news)]
    ]
    wrong = "(msg <> 'new' AND msg <> concat('m', id)) OR ds <> concat('d', id % 5)"
    query = f"SELECT count(*) FROM {table} WHERE {wrong}"
    assert hive.sql(query, timeout_seconds=QUERY_SECONDS) == [[0]]
