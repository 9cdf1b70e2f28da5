"""Location: one value for all spellings, and nothing decoded."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from mutation_api.storage.location import Location


@pytest.mark.parametrize("text", ["/w/t", "file:/w/t", "file:///w/t", "file://localhost/w/t", "FILE:/w/t/"])
def test_every_spelling_of_a_local_place_is_one(text: str) -> None:
    """Hive prints file:/a, Spark file:///a, users a plain path."""
    assert Location.parse(text) == Location("file", "", "/w/t")
    assert str(Location.parse(text)) == "file:/w/t"


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("hdfs://NameNode:8020/w", "hdfs://namenode/w"),
        ("s3://bucket/w", "s3a://bucket/w"),
        ("s3n://bucket/w/", "s3a://bucket/w"),
        ("abfs://c@account.host/w", "abfss://c@account.host/w"),
        ("abfss://c@Account.Host/w", "abfss://c@account.host/w"),
        ("hdfs://ns", "hdfs://ns/"),
    ],
)
def test_spellings_of_other_places(text: str, same: str) -> None:
    """A partition lies in its table's directory even if the two are spelled differently."""
    assert Location.parse(text) == Location.parse(same)


def test_places_that_only_look_alike_differ() -> None:
    """The path alone names a different file in each file system; a name service is not a bucket."""
    texts = [
        "/w/t",
        "hdfs:/w/t",
        "hdfs://a/w/t",
        "hdfs://a:9000/w/t",
        "s3a://a/w/t",
        "s3a://A/w/t",
        "gs://a/w/t",
    ]
    assert len({Location.parse(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("text", ["w/t", "", "file:w", "file://elsewhere/a", "hdfs:", "s3a:w"])
def test_a_text_that_names_no_place_is_refused(text: str) -> None:
    """A relative path would mean a different location on every worker."""
    with pytest.raises(OSError) as caught:
        Location.parse(text)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("name", ["ds=a%3Ab%2520", "a#b", "a?b", "a b", "ä", "a*[b]", "a\\b", "a\nb", "x:y"])
def test_nothing_is_decoded(name: str) -> None:
    """%3A is three characters of a directory's name: Hive escapes partition values so."""
    for root in ("/w", "hdfs://nn:9000/w", "s3a://b/w"):
        location = Location.parse(f"{root}/{name}")
        assert location.name == name
        assert location == Location.parse(root) / name
        assert Location.parse(str(location)) == location


def test_a_users_text_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it has a scheme, with one slash or two."""
    monkeypatch.chdir(tmp_path)
    assert Location.given("x/y") == Location.parse(f"{tmp_path}/x/y")
    assert Location.given(Path("x")) == Location.parse(f"{tmp_path}/x")
    assert Location.given("hdfs:/x") == Location("hdfs", "", "/x")
    assert Location.given("s3://b/x") == Location("s3a", "b", "/x")


def test_children_and_parents() -> None:
    """The root has no name and is its own parent."""
    root = Location.parse("s3a://b")
    deep = root / "w/t" / "delta"
    assert (str(deep), deep.name, deep.parent) == ("s3a://b/w/t/delta", "delta", root / "w/t")
    assert (root.name, root.parent) == ("", root)
    for wrong in ("", "/x"):
        with pytest.raises(ValueError, match="expected names of a location below"):
            root / wrong


def test_within() -> None:
    """By whole names, in one file system."""
    table = Location.parse("hdfs://a/w/t")
    assert table.is_within(table)
    assert (table / "x").is_within(table)
    assert table.is_within(Location.parse("hdfs://a/"))
    assert not Location.parse("hdfs://a/w/t2").is_within(table)
    assert not Location.parse("hdfs://b/w/t/x").is_within(table)
    assert (table / "x/y").relative_to(table) == "x/y"
    assert table.relative_to(Location.parse("hdfs://a/")) == "w/t"
    for other in (table, Location.parse("hdfs://b/w/t/x")):
        with pytest.raises(ValueError, match="is not below"):
            other.relative_to(table)


def test_it_travels() -> None:
    """To workers."""
    location = Location.parse("hdfs://a/w")
    assert pickle.loads(pickle.dumps(location)) == location
