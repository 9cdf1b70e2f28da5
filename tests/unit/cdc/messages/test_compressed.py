"""Compressed files of a log are read as if they were not; other files are refused by what they are."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api.cdc.messages import json_lines
from mutation_api.cdc.messages.json_lines import (
    LogFile,
    line_number,
    log_files,
    log_ranges,
    opened_bytes,
    read_lines,
)
from mutation_api.cli.terminal import EXIT_OK
from mutation_api.errors import InputFormatError
from mutation_api.storage.location import Location
from tests.support.ingested_table import IngestedTable
from tests.support.json_messages import Change, maxwell

SEED = 20240601
TABLE = ("--table", "shop.orders=default.t")


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


Compress = Callable[[bytes], bytes]
KINDS: dict[str, Compress] = {".gz": gzip.compress, ".zst": zstd}


def in_pieces(data: bytes, compress: Compress) -> bytes:
    """As ``cat`` of several compressed files has it; the pieces end anywhere."""
    chance = random.Random(SEED)
    cuts = [0, *sorted(chance.sample(range(len(data)), 5)), len(data)]
    return b"".join(compress(data[a:b]) for a, b in itertools.pairwise(cuts))


def row(number: int, note: str) -> dict[str, object]:
    return {"id": number, "note": note}


@pytest.fixture
def notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_session: SparkSession | None
) -> IngestedTable:
    return IngestedTable(tmp_path, monkeypatch, {"id": "bigint", "note": "string"}, engine_session)


@pytest.mark.parametrize("ending", KINDS)
def test_the_lines_are_those_of_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Whatever its members, and the blocks that are read; with the bytes at which they began there."""
    chance = random.Random(SEED)
    lines = ["x" * chance.randrange(40) + "é" for _ in range(300)]
    data = "\n".join([*lines, "", "last"]).encode()
    (tmp_path / "a-1.json").write_bytes(data)
    (tmp_path / f"b-2.json{ending}").write_bytes(in_pieces(data, KINDS[ending]))
    (tmp_path / f"c-3.json{ending}").write_bytes(b"")
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 997)
    files = log_files([tmp_path])
    assert [file.number for file in files] == [1, 2, 3]
    found = [
        [
            line
            for part in log_ranges(files)
            if part.file == i
            for some in read_lines(file, part)
            for line in some
        ]
        for i, file in enumerate(files)
    ]
    assert found[0] == found[1]
    assert found[2] == []
    assert [line_number(files[1].location, offset) for offset, _ in found[1]] == list(
        range(1, len(lines) + 3)
    )


@pytest.mark.thorough(1)
@pytest.mark.parametrize("ending", KINDS)
def test_a_compressed_log_is_applied(notes: IngestedTable, ending: str) -> None:
    """In the order of lines: a rest that is added later goes on where the log ended."""
    texts = [
        maxwell(Change("insert", None, row(1, "a"), 1, 4), position=None),
        maxwell(Change("insert", None, row(2, "b"), 1, 5), position=None),
        maxwell(Change("update", row(1, "a"), row(1, "c"), 1, 6), position=None),
        maxwell(Change("delete", row(2, "b"), None, 1, 7), position=None),
    ]
    compress = KINDS[ending]
    first = compress("".join(f"{text}\n" for text in texts[:2]).encode())
    path = notes.folder / f"log-1.json{ending}"
    path.write_bytes(first)
    assert notes.ingest("maxwell", str(path), *TABLE) == EXIT_OK
    assert notes.rows() == [row(1, "a"), row(2, "b")]
    path.write_bytes(first + compress("".join(f"{text}\n" for text in texts[2:]).encode()))
    assert notes.ingest("maxwell", str(path), *TABLE) == EXIT_OK
    assert notes.rows() == [row(1, "c")]


def test_a_log_of_several_compressed_files(notes: IngestedTable) -> None:
    """By Spark a task reads a file."""
    for number, (ending, compress) in enumerate(KINDS.items(), start=1):
        line = maxwell(Change("insert", None, row(number, ending), 1, number))
        (notes.folder / "log").mkdir(exist_ok=True)
        (notes.folder / "log" / f"log-{number}.json{ending}").write_bytes(compress(line.encode()))
    assert notes.ingest("maxwell", str(notes.folder / "log"), *TABLE) == EXIT_OK
    assert notes.rows() == [row(1, ".gz"), row(2, ".zst")]


def damaged(ending: str) -> list[bytes]:
    whole = KINDS[ending](
        b"".join(b'{"number": %d}\n' % random.Random(i).randrange(10**9) for i in range(5000))
    )
    return [
        whole[:-3],
        whole[: len(whole) // 2],
        whole[:3],
        whole + b"garbage behind it",
        whole + whole[:-5],
        b'{"a": 1}\n' * 100,
        *([whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:]] if ending == ".gz" else []),
    ]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(("ending", "data"), [(each, data) for each in KINDS for data in damaged(each)])
def test_a_file_that_is_not_whole_is_refused(
    notes: IngestedTable, capsys: pytest.CaptureFixture[str], ending: str, data: bytes
) -> None:
    """Cut off, damaged, or not compressed so: nothing is applied. A whole file in its place is."""
    path = notes.folder / f"log-1.json{ending}"
    path.write_bytes(data)
    (part,) = log_ranges(log_files([path]))
    with pytest.raises(
        InputFormatError, match=r"log-1\.json\..* cannot be decompressed: .*when it is complete"
    ):
        list(read_lines(log_files([path])[0], part))
    assert notes.ingest("maxwell", str(path), *TABLE) != EXIT_OK
    assert f"log-1.json{ending} cannot be decompressed" in capsys.readouterr().err
    assert notes.rows() == []
    path.write_bytes(KINDS[ending](maxwell(Change("insert", None, row(1, "a"), 1, 4)).encode()))
    assert notes.ingest("maxwell", str(path), *TABLE) == EXIT_OK
    assert notes.rows() == [row(1, "a")]


@pytest.mark.parametrize("ending", KINDS)
def test_a_file_is_read_up_to_the_size_that_it_had(tmp_path: Path, ending: str) -> None:
    """A member that is added meanwhile is for the next run."""
    path = tmp_path / f"log-1.json{ending}"
    path.write_bytes(KINDS[ending](b"1\n"))
    (file,) = log_files([path])
    path.write_bytes(path.read_bytes() + KINDS[ending](b"2\n"))
    (part,) = log_ranges([file])
    assert [text for some in read_lines(file, part) for _, text in some] == ["1"]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("ending", KINDS)
def test_memory_holds_a_block(tmp_path: Path, ending: str) -> None:
    """Of a file of 64 MiB that is a few KiB when it is compressed."""
    path = tmp_path / f"log-1.json{ending}"
    path.write_bytes(KINDS[ending](b'{"a": 1}\n' * (64 * 1024 * 1024 // 9)))
    (file,) = log_files([path])
    assert file.byte_count < 64 * 1024 * 1024
    with opened_bytes(file.location, file.size) as stream:
        tracemalloc.start()
        try:
            while stream.read(json_lines.BLOCK_BYTES):
                pass
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 6 * json_lines.BLOCK_BYTES


def test_a_storage_that_fails_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the storage is named."""
    path = tmp_path / "log-1.json.gz"
    path.write_bytes(gzip.compress(b"1\n"))

    class Broken:
        def read(self, size: int) -> bytes:
            raise OSError("the line is dead")

        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *exc_info: object) -> None:
            pass

    monkeypatch.setattr("mutation_api.cdc.messages.json_lines.opened", lambda location: Broken())
    file = LogFile(Location.given(str(path)), 1, 20)
    with pytest.raises(InputFormatError, match="cannot be read: the line is dead"):
        list(read_lines(file, log_ranges([file])[0]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"{}\n", mtime=0), r"is compressed with gzip; its name must end in \.gz"),
        (zstd(b"{}\n"), r"is compressed with zstd; its name must end in \.zst"),
        (b"BZh91AY&SY", "is compressed with bzip2; decompress it"),
        (b"\xfd7zXZ\x00\x00", "is compressed with xz; decompress it"),
        (b"PK\x03\x04x", "is a zip archive; unpack it"),
        ('{"a": 1}\n'.encode("utf-16"), "is encoded in UTF-16; convert it to UTF-8"),
        (b"Obj\x01x", "is an Avro file"),
        (b"PAR1x", "is a Parquet file"),
        (b"\x00\x00\x00\x00\x07\x02", "has binary messages, such as Avro with a schema registry"),
    ],
)
def test_other_files_are_named(tmp_path: Path, data: bytes, said: str) -> None:
    """By their first bytes."""
    path = tmp_path / "log-1.json"
    path.write_bytes(data)
    (file,) = log_files([path])
    with pytest.raises(InputFormatError, match=rf"log-1\.json {said}"):
        list(read_lines(file, log_ranges([file])[0]))


def test_what_is_said_of_a_message_names_its_line(
    notes: IngestedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the file before its compression."""
    good = maxwell(Change("insert", None, row(1, "a"), 1, 4))
    bad = json.dumps({**json.loads(good), "type": "odd"})
    path = notes.folder / "log-1.json.gz"
    path.write_bytes(gzip.compress(f"{good}\n{bad}\n".encode()))
    assert notes.ingest("maxwell", str(path), *TABLE) != EXIT_OK
    assert "log-1.json.gz, line 2, field type: unknown operation odd" in capsys.readouterr().err
