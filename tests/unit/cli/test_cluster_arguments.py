"""Options that send a subcommand to a cluster: what they make of the environment and of its words."""

from __future__ import annotations

import argparse
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mutation_api.cli.cluster_arguments import (
    add_cluster_arguments,
    sent_to_cluster,
    spark_is_given,
    words_without_options,
)
from mutation_api.cli.engine_arguments import add_engine_argument
from mutation_api.cli.main import main
from mutation_api.cli.table_arguments import location_from
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.errors import ConfigurationError


def parsed(*words: str) -> argparse.Namespace:
    """As ``apply`` has them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("changes", type=location_from)
    parser.add_argument("--hive-conf")
    add_engine_argument(parser)
    add_cluster_arguments(parser)
    arguments = parser.parse_args(words)
    arguments.subcommand = "apply"
    return arguments


@pytest.fixture(autouse=True)
def no_spark_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said which Spark it is; afterwards the environment is as before."""
    monkeypatch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "MASTER"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


FakeSubmit = Callable[[str], None]


@pytest.fixture
def spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSubmit:
    """Puts lines of a shell in the place of ``spark-submit``."""

    def put(lines: str) -> None:
        program = tmp_path / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    return put


def test_without_options_nothing_changes() -> None:
    """The engine is chosen as ever."""
    arguments = parsed("x.csv")
    assert sent_to_cluster(arguments, ["x.csv"]) is None
    assert arguments.engine == "auto"
    assert not spark_is_given()


def test_spark_submit_is_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that spark-submit starts does not do its work elsewhere because it is little."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")
    arguments = parsed("x.csv")
    assert sent_to_cluster(arguments, ["x.csv"]) is None
    assert arguments.engine == "spark"
    assert spark_is_given()


def test_client_mode_tells_pyspark() -> None:
    """In PySpark's own variable; what the user sets wins over what we set."""
    words = (
        "--master yarn --spark-conf spark.executor.memory=4g --spark-conf spark.app.name=mine "
        "--python-archive hdfs:///p.tar.gz x.csv"
    )
    arguments = parsed(*words.split())
    assert sent_to_cluster(arguments, words.split()) is None
    assert arguments.engine == "spark"
    found = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
    assert found[:4] == ["--master", "yarn", "--deploy-mode", "client"]
    assert found[-1] == "pyspark-shell"
    assert os.environ["PYSPARK_PYTHON"] == "./python/bin/python"
    assert dict(each.split("=", 1) for each in found[5:-1:2]) == {
        "spark.app.name": "mine",
        "spark.executor.memory": "4g",
        "spark.archives": "hdfs:///p.tar.gz#python",
        "spark.pyspark.python": "./python/bin/python",
        "spark.pyspark.driver.python": sys.executable,
    }


def test_cluster_mode_submits_the_rest(spark_submit: FakeSubmit, tmp_path: Path) -> None:
    """``spark-submit`` gets the program and the command's other words."""
    spark_submit(f'printf "%s\\n" "$@" > {tmp_path}/words')
    words = ["--master=yarn", "--deploy-mode", "cluster", "hdfs://n/x.csv", "--engine", "auto"]
    assert sent_to_cluster(parsed(*words), words) == EXIT_OK
    found = (tmp_path / "words").read_text().splitlines()
    assert found[:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert "spark.yarn.maxAppAttempts=1" in found
    assert found[-4:] == [found[-4], "hdfs://n/x.csv", "--engine", "auto"]
    assert found[-4].endswith("mutation_api/cli/main.py")


SUBMITTED = "26/11/25 20:00:00 INFO Client: Submitted application application_17_0003\n"
FAILED = "26/11/25 20:00:09 ERROR Client: Application diagnostics message: "
TOLD = f"{SUBMITTED}{FAILED}hive-mutate ended with"
TRACE = (
    'Exception in thread "main" org.apache.spark.SparkException: Application application_17_0003 finished '
    "with failed status\n\tat org.apache.spark.deploy.yarn.Client.run(Client.scala:1311)\n"
)
LOGS = "; for its output: yarn logs -applicationId application_17_0003"
UNKNOWN = "application_17_0003 failed on the cluster"


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        (f"{TOLD} 1: hive-mutate apply: MutationError: a\nb\n{TRACE}", EXIT_FAILED, "MutationError: a\nb"),
        (f"{TOLD} 2: hive-mutate apply: error: no such key\n{TRACE}", EXIT_USAGE, "error: no such key"),
        (
            f"{SUBMITTED}{FAILED}User application exited with status 2\n{TRACE}",
            EXIT_USAGE,
            f"{UNKNOWN}: User application exited with status 2{LOGS}",
        ),
        (f"{SUBMITTED}{TRACE}", EXIT_FAILED, f"{UNKNOWN}{LOGS}"),
        (
            "no HADOOP_CONF_DIR\n",
            EXIT_FAILED,
            "spark-submit failed before it started an application on the cluster",
        ),
    ],
)
def test_how_a_command_ended_on_the_cluster(
    spark_submit: FakeSubmit,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    output: str,
    code: int,
    message: str,
) -> None:
    """What spark-submit writes is passed on; the last line is the command's own message."""
    (tmp_path / "output").write_text(output)
    spark_submit(f"cat {tmp_path}/output >&2; exit 101")
    words = ["--master", "yarn", "--deploy-mode", "cluster", "hdfs://n/x.csv"]
    assert sent_to_cluster(parsed(*words), words) == code
    assert capfd.readouterr().err == f"{output}hive-mutate apply: {message}\n"


def test_only_options_are_left_out() -> None:
    """Also with ``=``, and whatever their values look like."""
    words = ["apply", "--master", "--deploy-mode", "t", "--spark-conf=a=b", "x", "--python-archive", "f", "y"]
    assert words_without_options(words) == ["apply", "t", "x", "y"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--deploy-mode cluster x.csv", "--deploy-mode needs a cluster: name it with --master"),
        ("--spark-conf spark.a=b x.csv", "--spark-conf needs a cluster"),
        ("--python-archive p.tar.gz x.csv", "--python-archive needs a cluster"),
        ("--master yarn --engine local x.csv", "leave out --master"),
        ("--master yarn --spark-conf executor.memory=4g x.csv", "expected spark.NAME=VALUE"),
        ("--master yarn --spark-conf spark.a x.csv", "expected spark.NAME=VALUE"),
        ("--master yarn --deploy-mode cluster x.csv", "x.csv (changes) is on this machine"),
        ("--master yarn --deploy-mode cluster --hive-conf /etc hdfs://n/x.csv", "--hive-conf names a file"),
    ],
)
def test_contradictions(words: str, message: str) -> None:
    """They are refused before anything starts."""
    with pytest.raises(ConfigurationError) as caught:
        sent_to_cluster(parsed(*words.split()), words.split())
    assert message in str(caught.value)
    assert not spark_is_given()


def test_a_refusal_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """As all others of the command."""
    words = ["merge", "--table", "d.t", "--key", "id", "--source", "x.csv", "--deploy-mode", "cluster"]
    assert main(words) == EXIT_FAILED
    assert capsys.readouterr().err.startswith("hive-mutate merge: ConfigurationError: --deploy-mode needs")
