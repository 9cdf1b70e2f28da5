"""The command itself: its version, and the option names in its errors."""

from __future__ import annotations

import argparse
import configparser
import logging
from importlib import metadata
from pathlib import Path

import pytest

from mutation_api import _version
from mutation_api.cli.main import main
from mutation_api.cli.parsers import in_option_names, option_names, waits_are_told
from mutation_api.cli.table_arguments import key_columns, key_values, listed_names
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE, text_table
from mutation_api.errors import ConfigurationError, ReadError
from mutation_api.transaction.clock import WAIT_LOG

ROOT = Path(__file__).parents[3]


def test_the_version_is_that_of_setup_cfg(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, with the command's name."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == EXIT_OK
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert capsys.readouterr().out == f"hive-mutate {setup['metadata']['version']}\n"


def test_source_that_was_not_installed_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that runs it from an archive must not fail for it."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert _version.installed_version() == "0+unknown"


def test_without_a_subcommand_it_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """That is wrong usage."""
    assert main([]) == EXIT_USAGE
    assert "create-table" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("valid_txns: not a list", "--valid-txns: not a list"),
        ("pass valid_txns, or num_buckets.", "pass --valid-txns, or --buckets."),
        (
            "/data/valid_txns/x: d.valid_txns, my_valid_txns",
            "/data/valid_txns/x: d.valid_txns, my_valid_txns",
        ),
        ("set digits=True", "set --all-digits"),
    ],
)
def test_errors_name_options(message: str, expected: str) -> None:
    """Instead of the library's arguments; paths and longer names stay, and so does the class."""
    options = {**option_names("valid_txns"), "num_buckets": "--buckets", "digits=True": "--all-digits"}
    with pytest.raises(ReadError) as caught, in_option_names(options):
        raise ReadError(message)
    assert str(caught.value) == expected


def test_a_missing_metastore_is_to_be_named_by_an_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not if one is named: then it is what is wrong."""
    for variable in ("HIVE_CONF_DIR", "HADOOP_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    assert main(["show", "txns"]) == EXIT_FAILED
    printed, err = capsys.readouterr()
    assert printed == ""
    assert "no metastore address was given" in err
    assert err.endswith("neither is set); pass an address with --metastore, or a file with --hive-conf\n")
    for named in (("--metastore", "http//x"), ("--hive-conf", str(tmp_path / "no.xml"))):
        assert main(["show", "txns", *named]) == EXIT_FAILED
        assert "pass an address" not in capsys.readouterr().err


@pytest.mark.parametrize("is_quiet", [False, True])
def test_long_waits_are_told_unless_quiet(capsys: pytest.CaptureFixture[str], is_quiet: bool) -> None:
    """On standard error, only within the block."""
    log = logging.getLogger(WAIT_LOG)
    with waits_are_told(argparse.Namespace(subcommand="ingest", quiet=is_quiet)):
        log.info("%s waits", "it")
    log.info("afterwards")
    assert capsys.readouterr() == ("", "" if is_quiet else "hive-mutate ingest: it waits\n")


def test_lists_of_names_and_settings() -> None:
    """Blanks around names do not count, in values they do; a value may hold an equals sign."""
    assert listed_names(" a, b ") == key_columns("a,b") == ("a", "b")
    assert listed_names(" ") == ()
    assert key_values("--property", ["a=b=c", "d= "]) == [("a", "b=c"), ("d", " ")]
    with pytest.raises(ConfigurationError, match="--key: name at least one column"):
        key_columns(" ")
    for text in ("a,", ",a", "a,,b"):
        with pytest.raises(ConfigurationError, match="the list contains an empty name"):
            listed_names(text)
    for wrong in ("a", "=b"):
        with pytest.raises(ConfigurationError, match=f"--property '{wrong}': expected KEY=VALUE"):
            key_values("--property", ["x=y", wrong])


def test_a_table_is_aligned_by_a_sample() -> None:
    """Rows after the sample may be wider; without a sample all rows decide."""
    rows = [["1", "x"], ["22", "y"], ["333", "z"]]
    assert list(text_table(["A", "B"], rows)) == ["A    B", "1    x", "22   y", "333  z"]
    assert list(text_table(["A", "B"], iter(rows), sample=2)) == ["A   B", "1   x", "22  y", "333  z"]
    assert list(text_table(["A", "B"], [])) == ["A  B"]
