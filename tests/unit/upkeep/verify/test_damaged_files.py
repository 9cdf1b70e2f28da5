"""Files that are damaged, or cannot be read here, become findings; the other files are examined."""

from __future__ import annotations

import io
from pathlib import Path

import pyorc

from mutation_api.read.directory_scan import open_directory
from mutation_api.upkeep.verify.verify import verify_view
from tests.support.orc_parts import parts_of
from tests.unit.upkeep.verify.sound_tables import LAYOUTS, SoundTable, view_of


def test_a_null_key_is_a_notice(tmp_path: Path) -> None:
    """Hive reads it, so the file is sound; this library says of which file it could not read all."""
    path = tmp_path / "delta_0000001_0000001" / "bucket_00000"
    path.parent.mkdir()
    kinds = (
        "struct<operation:int,originalTransaction:bigint,bucket:int,rowId:bigint,currentTransaction:bigint,"
        "row:struct<id:int,m:map<string,int>>>"
    )
    sink = io.BytesIO()
    with pyorc.Writer(sink, kinds, struct_repr=pyorc.StructRepr.TUPLE) as writer:
        writer.set_user_metadata(**{"hive.acid.key.index": b"1,536870912,0;", "hive.acid.stats": b"1,0,0"})
        writer.write((0, 1, 536870912, 0, 1, (7, {None: 1})))
    path.write_bytes(sink.getvalue())
    view = open_directory(tmp_path, "id int, m map<string,int>", acid_version="2", num_buckets=1)
    report = verify_view(view)
    assert report.is_sound, report.findings
    found = [f for f in report.findings if f.rule_name == "not-read-here"]
    assert [f.location.path for f in found] == [str(path)]
    assert "'row'" in found[0].found
    assert "NULL key" in found[0].found


def test_a_file_that_ends_decoders_does_not_end_verify(tmp_path: Path) -> None:
    """Two damages in one table are two findings."""
    table = SoundTable(tmp_path, LAYOUTS[-1])
    first, second = table.file(1, 0), table.file(3, 1)
    parts = parts_of(first.read_bytes())
    parts.postscript = [(f, 1 << 40 if f == 3 else v) for f, v in parts.postscript]
    first.write_bytes(parts.joined())
    parts = parts_of(second.read_bytes())
    parts.footer += b"\x22\x00" * 50_000
    second.write_bytes(parts.joined())
    report = verify_view(view_of(tmp_path, LAYOUTS[-1]))
    found = {f.location.path for f in report.damages if f.rule_name == "unreadable"}
    assert found == {str(first), str(second)}
