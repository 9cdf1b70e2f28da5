"""Text of properties and positions is typed or refused; no statement is made by str.format."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from mutation_api.cdc.mysql.log_position import LogPosition
from mutation_api.cdc.source import Position
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.database import connect_database
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint, ProgressMark, Run
from mutation_api.cdc.update.settings import PREFIX, UpdateSettings
from mutation_api.cdc.update.source_rows import check_bound
from mutation_api.cdc.update.sources import SourceAccess
from mutation_api.errors import ConfigurationError, SourcePositionError

ROOT = Path(__file__).parents[4] / "mutation_api"
SETTINGS = UpdateSettings(
    identifier="0a1b2c3d",
    state="enabled",
    source=SourceUrl.of("postgresql://u@h:5433/db"),
    source_table="orders",
    key=("id",),
    method=CaptureMethod.CHANGELOG,
)
MARK = ProgressMark(
    3,
    "7",
    1.5,
    ((1, 2), (4, 4)),
    1.25,
    Fingerprint("1", {"a": "b"}),
    below=(1, 2),
    recent=(Run(1.5, 1, 2, 3, 0.5),),
    days=(("2026-01-01", 1, 1, 2, 3),),
)
OTHERS = ("", " ", "null", "{}", "[]", "0", "true", "'", "\x00", "\ud800", "[" * 50_000, "9" * 5000, "١")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(UpdateSettings)])
def test_a_property_is_typed_or_refused(name: str) -> None:
    """By an error that names it, or it is the same again."""
    good = {key: value for key, value in SETTINGS.to_properties().items() if value is not None}
    for text in OTHERS:
        try:
            found = UpdateSettings.of("d.t", {**good, PREFIX + name: text})
        except ConfigurationError as error:
            assert f"table d.t: its property {PREFIX}" in str(error)
            assert len(str(error)) < 1200
        else:
            assert found is not None
            again = {key: value for key, value in found.to_properties().items() if value is not None}
            assert UpdateSettings.of("d.t", again) == found


def test_a_property_that_is_missing_is_named() -> None:
    """And nothing is guessed for it."""
    good = {key: value for key, value in SETTINGS.to_properties().items() if value is not None}
    for name in ("identifier", "state", "source", "source_table", "key", "method"):
        with pytest.raises(ConfigurationError, match=f"update.{name} is missing"):
            UpdateSettings.of("d.t", {key: value for key, value in good.items() if key != PREFIX + name})


@pytest.mark.thorough(1)
@pytest.mark.parametrize("name", json.loads(MARK.to_position().text))
def test_a_part_of_a_position_is_typed_or_refused(name: str) -> None:
    """Whatever stands in its place."""
    text = MARK.to_position().text
    assert ProgressMark.of(text) == MARK
    bomb = base64.b85encode(zlib.compress(b"[" + b"0," * 10_000_000 + b"0]")).decode()
    given: list[Any] = [
        None,
        True,
        -1,
        1.5,
        2**70,
        float("nan"),
        "x",
        "1; DROP",
        bomb,
        [],
        [[]],
        [1],
        {},
        {"a": 1},
    ]
    for value in given:
        altered = json.dumps({**json.loads(text), name: value})
        try:
            found = ProgressMark.of(altered)
        except SourcePositionError as error:
            assert len(str(error)) < 2000
        else:
            assert ProgressMark.of(found.to_position().text) == found
            assert type(found.extraction) is int
    for other in OTHERS:
        with pytest.raises(SourcePositionError):
            ProgressMark.of(other)


def test_numbers_of_positions_are_numbers() -> None:
    """The number of a log row, and that of a transaction."""
    with pytest.raises(SourcePositionError, match="is not the number of a row"):
        _ = dataclasses.replace(MARK, position="1 OR 1").number
    with pytest.raises(SourcePositionError, match="position is transaction 1 OR"):
        check_bound(dataclasses.replace(MARK, bound="1 OR 1"), "5", "x")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h/db",
        "postgresql://h:5433/db",
        "mysql://u@h/db",
        "mariadb://u@h:3306/db",
        "sqlite:////tmp/x.db",
        "sqlite:///x.db",
        "postgresql:///db?host=/run/pg",
    ],
)
def test_settings_know_the_name_of_their_source(url: str) -> None:
    """It is that of the database, by which watermarks are found."""
    settings = dataclasses.replace(SETTINGS, source=SourceUrl.of(url))
    assert settings.source_id == f"{connect_database(url, '').source_id}#0a1b2c3d"


def test_no_statement_is_made_by_format() -> None:
    """A brace in a name would be a place of another value."""
    for place in (ROOT / "cdc" / "update", ROOT / "cdc" / "mysql"):
        for path in place.rglob("*.py"):
            found = re.findall(r"\S+\.format(?:_map)?\(", path.read_text(encoding="utf-8"))
            assert not found, (path, found)


@pytest.mark.parametrize("name", ["file", "position", "gtid", "server", "begun"])
def test_a_position_in_the_binary_log_is_typed_or_refused(name: str) -> None:
    """A watermark of it, too."""
    good = LogPosition("log.000001", 5, "0-1-2", "1", 7)
    assert LogPosition.of(good.to_position()) == good
    values = json.loads(good.to_position().text)
    for value in (None, [], {}, True, -1, 1.5):
        with pytest.raises(SourcePositionError, match="is not a position in a binary log"):
            LogPosition.of(Position((1,), json.dumps({**values, name: value})))
    for text in OTHERS:
        with pytest.raises(SourcePositionError, match="is not a position in a binary log"):
            LogPosition.of(Position((1,), text))


@pytest.mark.parametrize("name", ["PGPASSWORD", "PGPASSFILE", "PGSERVICE", ".pgpass", "passfile"])
def test_passwords_that_a_driver_finds_need_the_source_to_be_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may send them to any host."""
    monkeypatch.setenv("HOME", str(tmp_path))
    url = "postgresql://u@h/db" + ("?passfile=/x" if name == "passfile" else "")
    source = SourceUrl.of(url)
    assert SourceAccess(source=url).password_for("d.t", source) == ""
    if name == ".pgpass":
        (tmp_path / name).write_text("*:*:*:u:s3cret")
    elif name.startswith("PG"):
        monkeypatch.setenv(name, "s3cret")
    with pytest.raises(ConfigurationError, match=f"to which the password .*{name}.* may be sent") as caught:
        SourceAccess().password_for("d.t", source)
    assert "s3cret" not in str(caught.value)
    assert SourceAccess(source=url).password_for("d.t", source) == ""
    assert SourceAccess(password="p").password_for("d.t", SourceUrl.of("sqlite:////x")) == "p"


@pytest.mark.parametrize(
    "text", ["postgresql://u:s3cret@h/db", "s3cret", "s3cret@h x", "postgresql://u@h/db s3cret"]
)
def test_a_variable_of_another_form_is_refused_and_not_shown(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named."""
    monkeypatch.setenv("HIVE_MUTATE_SOURCE", text)
    with pytest.raises(ConfigurationError, match="HIVE_MUTATE_SOURCE") as caught:
        SourceAccess().password_for("d.t", SourceUrl.of("postgresql://u@h/other"))
    assert "s3cret" not in str(caught.value)
