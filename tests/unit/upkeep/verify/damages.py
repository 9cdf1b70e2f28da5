"""What can go wrong with a sound table: each damage has a name, a way to do it, and the finding it gives."""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

from mutation_api.format.event import ACID_STATS, ACID_VERSION, KEY_INDEX
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.format.tail import parse_tail
from tests.support.orc_stripes import bloom_filter_bits, damaged_row_index
from tests.unit.upkeep.verify.sound_tables import SoundTable

LEGACY, SPLIT = AcidVersion.V1_LEGACY, AcidVersion.V1_SPLIT
HIVE3, HIVE4 = AcidVersion.V2_HIVE3, AcidVersion.V2_HIVE4

Do = Callable[[SoundTable], tuple[Path, int | None]]
"""Damages the table; the answer is where the finding must be, and in which row if it is about rows."""


@dataclass(frozen=True)
class Damage:
    """One damage of a table of one layout, and the rule it breaks."""

    name: str
    version: AcidVersion
    rule_name: str
    do: Do
    is_main: bool


DAMAGES: list[Damage] = []
"""All of them; of several layouts the last one is tested always."""


def damage(rule_name: str, *versions: AcidVersion) -> Callable[[Do], Do]:
    """Add a function to the table of damages, once for each layout."""

    def add(do: Do) -> Do:
        DAMAGES.extend(
            Damage(f"{do.__name__}-{v.value}", v, rule_name, do, is_main=v is versions[-1]) for v in versions
        )
        return do

    return add


def copied(directory: Path, name: str) -> Path:
    """A copy beside it."""
    return Path(shutil.copytree(directory, directory.parent / name))


def rewritten(path: Path, edit: Callable[[bytes], bytes]) -> Path:
    """A file with other bytes."""
    path.write_bytes(edit(path.read_bytes()))
    return path


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    """A file with other bytes in one place, as many as there were."""
    assert len(old) == len(new)
    content = path.read_bytes()
    assert content.count(old) == 1
    return rewritten(path, lambda _: content.replace(old, new))


def nullified(name: str, at: int) -> Callable[[pa.Table], pa.Table]:
    """Make one value of a column NULL."""

    def change(table: pa.Table) -> pa.Table:
        column = table.column(name)
        mask = pa.array([n == at for n in range(len(table))])
        values = pa.compute.if_else(mask, pa.scalar(None, column.type), column)
        return table.set_column(table.schema.get_field_index(name), name, values)

    return change


def retyped(name: str, data_type: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    """Give a column another type."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, table.column(name).cast(data_type))

    return change


def with_rows(build: Callable[[pa.StructArray], pa.StructArray]) -> Callable[[pa.Table], pa.Table]:
    """Replace the rows of a file."""

    def change(table: pa.Table) -> pa.Table:
        return table.set_column(5, "row", build(table.column("row").combine_chunks()))

    return change


def structs(*named: tuple[str, str]) -> Callable[[pa.StructArray], pa.StructArray]:
    """The same rows with fields of other names or order: (new name, old name)."""

    def build(rows: pa.StructArray) -> pa.StructArray:
        return pa.StructArray.from_arrays([rows.field(old) for _, old in named], [new for new, _ in named])

    return build


def edited(
    table: SoundTable, id: int, bucket: int, edit: Callable[[list[Any]], list[Any]], **how: Any
) -> Path:
    """Write a file of an insert delta anew, with other events."""
    path = table.file(id, bucket)
    numbers = range(100) if id == 1 else range(100, 120)
    table.write(path, edit(table.inserts(id, bucket, numbers)), **how)
    return path


def at(events: list[Any], index: int, **fields: Any) -> list[Any]:
    """The same events, one of them with other fields."""
    names = ("operation", "original", "bucket", "row_id", "current", "row")
    changed = tuple(fields.get(name, value) for name, value in zip(names, events[index], strict=True))
    return [*events[:index], changed, *events[index + 1 :]]


def delete_file(table: SoundTable, bucket: int) -> Path:
    """A file of the delete delta of id 2."""
    return table.file(2, bucket, is_delete=True)


def deletes(table: SoundTable, bucket: int) -> list[Any]:
    """Its events."""
    gone = table.of_bucket(bucket, range(0, 100, 5))
    originals = {n: (1, table.field(bucket), k) for k, n in enumerate(table.of_bucket(bucket, range(100)))}
    return [(2, *originals[n], 2, None) for n in sorted(gone, key=lambda n: originals[n])]


# -- bytes ---------------------------------------------------------------------------------------------------
@damage("unreadable", LEGACY, SPLIT, HIVE3, HIVE4)
def cut_off(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.file(1, 0), lambda content: content[:-100]), None


@damage("unreadable", HIVE4)
def postscript_overwritten(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.file(1, 1), lambda content: content[:-5] + b"XXXX" + content[-1:]), None


@damage("unreadable", HIVE3, HIVE4)
def data_overwritten(table: SoundTable) -> tuple[Path, int | None]:
    def edit(content: bytes) -> bytes:
        stripe = parse_tail(content).stripes[0]
        start = stripe.offset + stripe.index_length
        return content[:start] + b"\xff" * stripe.data_length + content[start + stripe.data_length :]

    return rewritten(table.file(1, 0), edit), 0


@damage("unreadable", HIVE4)
def no_orc_at_all(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.file(3, 0), lambda _: b"PAR1 this is something else, not ORC"), None


@damage("empty-file", SPLIT, HIVE4)
def emptied(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.file(1, 0), lambda _: b""), None


@damage("row-count", HIVE4)
def rows_miscounted_in_footer(table: SoundTable) -> tuple[Path, int | None]:
    path = table.file(1, 0)
    count = parse_tail(path.read_bytes()).row_count
    edited(table, 1, 0, list, compression="uncompressed")
    return replaced_last(path, bytes([6 << 3, count]), bytes([6 << 3, count + 1])), None


def replaced_last(path: Path, old: bytes, new: bytes) -> Path:
    """Replace the last of several places."""
    head, found, end = path.read_bytes().rpartition(old)
    assert found
    path.write_bytes(head + new + end)
    return path


# -- directories ---------------------------------------------------------------------------------------------
@damage("directory-name", LEGACY, HIVE3, HIVE4)
def not_padded(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "delta_3_3_0007"), None


@damage("directory-name", HIVE4)
def no_number(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "base_of_march"), None


@damage("directory-name", HIVE4)
def ends_before_it_starts(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "delta_0000003_0000002"), None


@damage("directory-name", SPLIT, HIVE3)
def compacted_by_hive_4(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "delta_0000003_0000003_v0000009"), None


@damage("unknown-id", LEGACY, SPLIT, HIVE3, HIVE4)
def id_of_the_future(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "delta_0000009_0000009_0000"), None


@damage("unknown-id", HIVE3)
def base_of_the_future(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "base_0000009"), None


@damage("unknown-compaction", HIVE4)
def compaction_of_the_future(table: SoundTable) -> tuple[Path, int | None]:
    return copied(table.delta(3), "delta_0000003_0000003_v0000099"), None


@damage("overlapping-deltas", HIVE4)
def overlapping_compactions(table: SoundTable) -> tuple[Path, int | None]:
    copied(table.delta(1), "delta_0000001_0000002_v0000020")
    return copied(table.delta(3), "delta_0000002_0000003_v0000021"), None


@damage("overlapping-deltas", HIVE4)
def compaction_of_one_id_beside_it(table: SoundTable) -> tuple[Path, int | None]:
    table.delta(3).rename(table.root / "delta_0000003_0000003")
    return copied(table.root / "delta_0000003_0000003", "delta_0000003_0000003_v0000021"), None


def base_with_marker(table: SoundTable, marker: str) -> Path:
    """The first delta as a base with a marker."""
    base = copied(table.delta(1), "base_0000001")
    (base / "_metadata_acid").write_text(marker)
    return base / "_metadata_acid"


@damage("base-marker", HIVE3, HIVE4)
def marker_without_json(table: SoundTable) -> tuple[Path, int | None]:
    return base_with_marker(table, "compacted"), None


@damage("base-marker", HIVE3)
def marker_of_unknown_kind(table: SoundTable) -> tuple[Path, int | None]:
    return base_with_marker(table, '{"thisFileVersion": "0", "dataFormat": "copied"}'), None


@damage("acid-version-file", HIVE3, HIVE4)
def version_of_the_future(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.delta(3) / "_orc_acid_version", lambda _: b"3"), None


@damage("acid-version-file", LEGACY, SPLIT)
def version_of_hive_3_in_a_partition(table: SoundTable) -> tuple[Path, int | None]:
    return rewritten(table.root / "_orc_acid_version", lambda _: b"2"), None


@damage("nested-directory", SPLIT, HIVE4)
def delta_within_a_delta(table: SoundTable) -> tuple[Path, int | None]:
    target = table.delta(1) / "delta_0000001_0000001"
    shutil.copytree(table.delta(1), target)
    return target, None


@damage("file-name", LEGACY, SPLIT, HIVE3, HIVE4)
def bucket_not_padded(table: SoundTable) -> tuple[Path, int | None]:
    return table.file(3, 1).rename(table.delta(3) / "bucket_1"), None


@damage("file-name", SPLIT, HIVE3)
def attempt_in_a_name(table: SoundTable) -> tuple[Path, int | None]:
    return table.file(3, 1).rename(table.delta(3) / "bucket_00001_0"), None


@damage("file-name", HIVE4)
def notes_in_a_delta(table: SoundTable) -> tuple[Path, int | None]:
    (table.delta(3) / "notes.txt").write_text("do not delete")
    return table.delta(3) / "notes.txt", None


@damage("bucket-twice", HIVE4)
def two_attempts_of_a_bucket(table: SoundTable) -> tuple[Path, int | None]:
    return Path(shutil.copy(table.file(3, 1), table.delta(3) / "bucket_00001_1")), None


def side_file(table: SoundTable, content: bytes) -> Path:
    """A side file of bucket 0 of id 3."""
    path = table.delta(3) / f"{table.file(3, 0).name}_flush_length"
    path.write_bytes(content)
    return path


@damage("side-file", LEGACY, HIVE3, HIVE4)
def length_beyond_the_file(table: SoundTable) -> tuple[Path, int | None]:
    return side_file(table, (1 << 20).to_bytes(8, "big")), None


@damage("side-file", HIVE4)
def length_cut_off(table: SoundTable) -> tuple[Path, int | None]:
    return side_file(table, b"\0\0\0"), None


@damage("side-file", HIVE3)
def length_without_a_file(table: SoundTable) -> tuple[Path, int | None]:
    path = side_file(table, bytes(8))
    table.file(3, 0).unlink()
    return path, None


@damage("plain-file", HIVE3, HIVE4)
def plain_rows_in_a_delta(table: SoundTable) -> tuple[Path, int | None]:
    path = table.delta(3) / "000000_0"
    pa.orc.write_table(pa.table({"id": [1], "msg": ["x"]}), str(path))
    return path, None


@damage("plain-file", LEGACY, HIVE4)
def events_among_plain_rows(table: SoundTable) -> tuple[Path, int | None]:
    return Path(shutil.copy(table.file(3, 0), table.root / "000000_0")), None


@damage("directory", HIVE3, HIVE4)
def plain_file_without_a_bucket(table: SoundTable) -> tuple[Path, int | None]:
    pa.orc.write_table(pa.table({"id": [1], "msg": ["x"]}), str(table.root / "part-00000.orc"))
    return table.root, None


# -- footers -------------------------------------------------------------------------------------------------
@damage("codec", SPLIT, HIVE3)
def codec_of_hive_4(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, compression="zstd"), None


@damage("key-index", LEGACY, SPLIT, HIVE3, HIVE4)
def key_index_of_other_rows(table: SoundTable) -> tuple[Path, int | None]:
    def wrong(entries: dict[str, bytes]) -> dict[str, bytes]:
        return {**entries, KEY_INDEX: entries[KEY_INDEX].replace(b";", b"0;")}

    return edited(table, 3, 0, list, metadata=wrong), None


@damage("key-index", SPLIT, HIVE3)
def no_key_index(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, metadata=lambda e: {n: v for n, v in e.items() if n != KEY_INDEX}), None


@damage("key-index", HIVE3, HIVE4)
def key_index_of_fewer_stripes(table: SoundTable) -> tuple[Path, int | None]:
    def wrong(entries: dict[str, bytes]) -> dict[str, bytes]:
        keys = entries[KEY_INDEX].split(b";")
        assert len(keys) > 3, "several stripes"
        return {**entries, KEY_INDEX: b";".join(keys[2:])}

    def long_rows(table_: pa.Table) -> pa.Table:
        def build(rows: pa.StructArray) -> pa.StructArray:
            texts = pa.array([f"{n}" * 30_000 for n in range(len(rows))])
            return pa.StructArray.from_arrays([rows.field("id"), texts], ["id", "msg"])

        return with_rows(build)(table_)

    path = edited(
        table, 1, 0, list, metadata=wrong, change=long_rows, stripe_rows=10, compression="uncompressed"
    )
    return path, None


@damage("acid-stats", LEGACY, SPLIT, HIVE3, HIVE4)
def inserts_miscounted(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, metadata=lambda entries: {**entries, ACID_STATS: b"1,0,0"}), None


@damage("acid-stats", SPLIT, HIVE3)
def deletes_not_counted(table: SoundTable) -> tuple[Path, int | None]:
    path = delete_file(table, 0)
    table.write(path, deletes(table, 0), metadata=lambda entries: {**entries, ACID_STATS: b"0,0,0"})
    return path, None


@damage("acid-stats", SPLIT, HIVE3)
def no_counts_of_deletes(table: SoundTable) -> tuple[Path, int | None]:
    path = delete_file(table, 0)
    table.write(path, deletes(table, 0), metadata=lambda e: {n: v for n, v in e.items() if n != ACID_STATS})
    return path, None


@damage("acid-version", HIVE3, HIVE4)
def file_of_another_version(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, metadata=lambda entries: {**entries, ACID_VERSION: b"1"}), None


@damage("orc-statistics", LEGACY, HIVE4)
def value_outside_its_range(table: SoundTable) -> tuple[Path, int | None]:
    """A text changed in the data, so that ranges recorded of it are wrong."""
    path = edited(table, 3, 0, list, compression="uncompressed")
    number = table.of_bucket(0, range(100, 120))[3]
    content = path.read_bytes()
    data_end = parse_tail(content).stripes[0].end
    where = content.index(f"row {number}".encode(), parse_tail(content).stripes[0].index_length)
    assert where < data_end
    return rewritten(path, lambda _: content[:where] + b"zzz" + content[where + 3 :]), 0


@damage("orc-statistics", HIVE3)
def values_miscounted(table: SoundTable) -> tuple[Path, int | None]:
    """The statistics of another file of as many bytes; only counts differ."""
    path = edited(table, 3, 0, list, compression="uncompressed")
    count = len(table.of_bucket(0, range(100, 120)))
    content = path.read_bytes()
    tail = parse_tail(content)
    start = len(content) - 1 - tail.postscript_length - tail.footer_length - tail.statistics_length
    section = content[start : start + tail.statistics_length]
    changed = section.replace(bytes([8, count]), bytes([8, count + 1]))
    assert changed != section
    return rewritten(path, lambda _: content[:start] + changed + content[start + len(section) :]), 0


@damage("bloom-filter", LEGACY, HIVE4)
def empty_bloom_filter(table: SoundTable) -> tuple[Path, int | None]:
    """A filter without any bit, as it would be of no values."""
    path = edited(table, 3, 0, list, compression="uncompressed", bloom_filters=[7, 8])
    content = bytearray(path.read_bytes())
    (bits, _) = bloom_filter_bits(bytes(content))
    content[slice(*bits)] = bytes(bits[1] - bits[0])
    return rewritten(path, lambda _: bytes(content)), 0


# -- columns -------------------------------------------------------------------------------------------------
@damage("event-fields", LEGACY, HIVE3)
def event_fields_in_lower_case(table: SoundTable) -> tuple[Path, int | None]:
    return edited(
        table, 3, 0, list, change=lambda t: t.rename_columns([n.lower() for n in t.column_names])
    ), None


@damage("event-fields", HIVE4)
def bucket_of_another_type(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, change=retyped("bucket", pa.int64())), None


@damage("event-fields", HIVE4)
def plain_rows_in_a_bucket_file(table: SoundTable) -> tuple[Path, int | None]:
    pa.orc.write_table(pa.table({"id": [1], "msg": ["x"]}), str(table.file(3, 0)))
    return table.file(3, 0), None


@damage("column-names", LEGACY, SPLIT, HIVE3)
def columns_in_upper_case(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, change=with_rows(structs(("ID", "id"), ("MSG", "msg")))), None


@damage("column-names", HIVE4)
def columns_in_another_order(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, change=with_rows(structs(("msg", "msg"), ("id", "id")))), None


@damage("column-type", LEGACY, HIVE4)
def texts_in_a_number_column(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, change=with_rows(structs(("id", "msg"), ("msg", "msg")))), 0


# -- events --------------------------------------------------------------------------------------------------
@damage("event-null", LEGACY, HIVE4)
def no_row_id(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, list, change=nullified("rowId", 2)), 2


@damage("operation", HIVE3, HIVE4, SPLIT)
def delete_in_a_delta(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 1, operation=2)), 1


@damage("operation", SPLIT, HIVE3)
def update_in_a_delta(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 1, operation=1)), 1


@damage("operation", SPLIT, HIVE4)
def insert_in_a_delete_delta(table: SoundTable) -> tuple[Path, int | None]:
    path = delete_file(table, 0)
    table.write(path, at(deletes(table, 0), 2, operation=0))
    return path, 2


@damage("operation", LEGACY, HIVE4)
def unknown_operation(table: SoundTable) -> tuple[Path, int | None]:
    path = edited(
        table, 3, 0, list, change=lambda t: t.set_column(0, "operation", pa.array([7] * len(t), pa.int32()))
    )
    return path, 0


@damage("row-missing", LEGACY, SPLIT, HIVE3, HIVE4)
def insert_without_a_row(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 3, row=None)), 3


@damage("order", HIVE3, HIVE4, SPLIT)
def deletes_not_sorted(table: SoundTable) -> tuple[Path, int | None]:
    path, events = delete_file(table, 0), deletes(table, 0)
    table.write(path, [events[1], events[0], *events[2:]])
    return path, 1


@damage("order", LEGACY)
def inserts_before_updates(table: SoundTable) -> tuple[Path, int | None]:
    path = table.file(2, 0)
    new = table.inserts(2, 0, range(300, 320))
    updates = table.updates(2, table.of_bucket(0, range(0, 100, 10)))
    table.write(path, [*new, *updates])
    return path, len(new)


@damage("key-twice", HIVE3, HIVE4)
def row_id_twice_in_a_file(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 4, row_id=3)), 4


@damage("key-twice", HIVE3, HIVE4)
def row_id_in_two_files(table: SoundTable) -> tuple[Path, int | None]:
    """A base, and a delta that a faulty compaction left beside it, under a later name."""
    path = table.root / "base_0000001" / table.file(1, 0).name
    for bucket in (0, 1):
        place = path.parent / table.file(1, bucket).name
        table.write(place, table.inserts(1, bucket, range(100)))
    events = table.inserts(1, 0, range(100))
    target = table.root / "delta_0000001_0000002" / path.name
    table.write(target, events)
    return target, 0


@damage("id-range", LEGACY, SPLIT, HIVE3, HIVE4)
def event_of_another_id(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 5, current=2)), 5


@damage("original-id", HIVE3, HIVE4)
def row_of_another_id(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 0, original=2)), 0


@damage("row-number", LEGACY, HIVE4)
def negative_row_id(table: SoundTable) -> tuple[Path, int | None]:
    return edited(table, 3, 0, lambda events: at(events, 0, row_id=-1)), 0


@damage("bucket-field", HIVE3, HIVE4)
def unknown_bucket_codec(table: SoundTable) -> tuple[Path, int | None]:
    last = len(table.of_bucket(0, range(100, 120))) - 1
    return edited(table, 3, 0, lambda events: at(events, last, bucket=2 << 29)), last


@damage("bucket-file", LEGACY, SPLIT, HIVE3, HIVE4)
def row_of_another_bucket(table: SoundTable) -> tuple[Path, int | None]:
    last = len(table.of_bucket(0, range(100, 120))) - 1
    return edited(table, 3, 0, lambda events: at(events, last, bucket=table.field(1))), last


@damage("bucket-file", SPLIT, HIVE3, HIVE4)
def delete_in_the_file_of_another_bucket(table: SoundTable) -> tuple[Path, int | None]:
    path = delete_file(table, 0)
    events = [*deletes(table, 0), *deletes(table, 1)]
    table.write(path, events)
    return path, len(deletes(table, 0))


@damage("statement", HIVE3, HIVE4)
def row_of_another_statement(table: SoundTable) -> tuple[Path, int | None]:
    last = len(table.of_bucket(0, range(100, 120))) - 1
    return edited(table, 3, 0, lambda events: at(events, last, bucket=table.field(0, 5))), last


@damage("bucket-count", LEGACY, SPLIT, HIVE3, HIVE4)
def bucket_beyond_the_table(table: SoundTable) -> tuple[Path, int | None]:
    path = table.delta(3) / f"bucket_00007{table.suffix}"
    table.write(path, [(0, 3, table.field(7), 0, 3, {"id": 1, "msg": "x"})])
    return path, 0


@damage("bucket-hash", LEGACY, SPLIT, HIVE4)
def row_of_another_hash(table: SoundTable) -> tuple[Path, int | None]:
    other = table.of_bucket(1, range(100, 120))[0]
    return edited(table, 3, 0, lambda events: at(events, 6, row={"id": other, "msg": "lost"})), 6


@damage("early-delete", HIVE3, HIVE4)
def delete_before_its_row(table: SoundTable) -> tuple[Path, int | None]:
    path = delete_file(table, 0)
    table.write(path, [*deletes(table, 0), (2, 3, table.field(0), 0, 2, None)])
    return path, len(deletes(table, 0))


@damage("early-delete", HIVE4)
def delete_of_its_own_statement(table: SoundTable) -> tuple[Path, int | None]:
    path = table.file(3, 0, is_delete=True)
    table.write(path, [(2, 3, table.field(0), 1, 3, None)])
    return path, 0


# -- files of a bucket ---------------------------------------------------------------------------------------
@damage("delete-hits-nothing", SPLIT, HIVE3, HIVE4)
def delete_of_no_row(table: SoundTable) -> tuple[Path, int | None]:
    path, events = delete_file(table, 0), deletes(table, 0)
    table.write(path, [*events, (2, 1, table.field(0), 5000, 2, None)])
    return path, len(events)


@damage("delete-hits-nothing", LEGACY)
def update_of_no_row(table: SoundTable) -> tuple[Path, int | None]:
    path = table.file(3, 0)
    events = table.inserts(3, 0, range(100, 120))
    table.write(path, [(1, 1, 0, 5000, 3, {"id": table.of_bucket(0, range(100))[0], "msg": "x"}), *events])
    return path, 0


@damage("delete-hits-nothing", SPLIT, HIVE3, HIVE4)
def delta_is_gone(table: SoundTable) -> tuple[Path, int | None]:
    shutil.rmtree(table.delta(1))
    return delete_file(table, 0), 0


@damage("delete-hits-nothing", SPLIT, HIVE3, HIVE4)
def file_is_gone(table: SoundTable) -> tuple[Path, int | None]:
    table.file(1, 1).unlink()
    return delete_file(table, 1), 0


@damage("delete-hits-nothing", LEGACY)
def delta_of_updated_rows_is_gone(table: SoundTable) -> tuple[Path, int | None]:
    shutil.rmtree(table.delta(1))
    return table.file(2, 0), 0


@damage("deleted-twice", SPLIT, HIVE3, HIVE4)
def row_deleted_by_two_transactions(table: SoundTable) -> tuple[Path, int | None]:
    path = table.file(3, 0, is_delete=True)
    table.write(path, [(*event[:4], 3, None) for event in deletes(table, 0)[:1]])
    return path, 0


@damage("deleted-twice", SPLIT, HIVE3, HIVE4)
def row_deleted_twice_in_a_file(table: SoundTable) -> tuple[Path, int | None]:
    path, events = delete_file(table, 0), deletes(table, 0)
    table.write(path, [events[0], *events])
    return path, 1


@damage("unreadable", HIVE4)
def data_of_another_file(table: SoundTable) -> tuple[Path, int | None]:
    """The first half of one file and the second of another, as a copy that was interrupted may leave."""
    one, other = table.file(1, 0).read_bytes(), table.file(1, 1).read_bytes()
    half = len(other) // 2
    return rewritten(table.file(1, 1), lambda _: one[:half] + other[half:]), 0


@damage("row-index", HIVE4)
def position_behind_its_stream(table: SoundTable) -> tuple[Path, int | None]:
    """A group of rows begins somewhere else than its row index says."""
    return rewritten(table.file(1, 0), functools.partial(damaged_row_index, random.Random(4))), 0


def kinds() -> Iterator[str]:
    """The different damages."""
    yield from {d.do.__name__ for d in DAMAGES}
