"""Options that send a subcommand's work to a cluster.

In client mode this process is the driver: the options go to PySpark's own variable, and the session starts
with them. In cluster mode the driver runs on the cluster: ``spark-submit`` takes this program there, with
the words of the command less these options, and this process says how the command ended there. Started by
``spark-submit`` itself, a subcommand uses the session that it was given.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from metastore_client.java import quiet_java_home, spark_jars
from mutation_api.cli.arguments.cluster_answer import (
    is_driver_on_yarn,
    register_driver,
    run_submit,
    telling_yarn,
)
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

__all__ = [
    "SUBMITTED_VARIABLES",
    "add_cluster_arguments",
    "sent_to_cluster",
    "spark_is_given",
    "words_without_options",
]

CLIENT, CLUSTER = "client", "cluster"
ARCHIVE_FOLDER = "python"

SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
SUBMITTED_VARIABLES = ("PYSPARK_GATEWAY_PORT", SUBMIT_VARIABLE, "SPARK_CONF_DIR", "MASTER")
"""With one of these the user has said which Spark it is: spark-submit and our options, the others by hand."""

_OPTIONS_WITH_VALUE = ("--master", "--deploy-mode", "--spark-conf", "--python-archive")
_PYTHON = "spark.pyspark.python"
_MAIN = Path(__file__).parents[1] / "main.py"


def add_cluster_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare ``--master``, ``--deploy-mode``, ``--spark-conf`` and ``--python-archive``."""
    group = parser.add_argument_group("on a cluster (implies --engine spark)")
    group.add_argument(
        "--master",
        metavar="URL",
        help="yarn, spark://HOST:7077, k8s://… or local[N]: where Spark runs (default: as spark-submit says, "
        "else on this machine). YARN and HDFS are found by HADOOP_CONF_DIR",
    )
    group.add_argument(
        "--deploy-mode",
        choices=(CLIENT, CLUSTER),
        default=CLIENT,
        help="where the driver runs: in this process (client, the default), or on the cluster, where files "
        "are named by locations such as hdfs://… and what is printed goes to the log of its container",
    )
    group.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, as spark.executor.memory=4g; may be repeated",
    )
    group.add_argument(
        "--python-archive",
        metavar="FILE",
        help='Python for machines that have none, as "hive-mutate pack" writes it; a path, or hdfs://…',
    )


def spark_is_given() -> bool:
    """Whether somebody has said which Spark is to be used: our options, spark-submit, or its variables."""
    return any(name in os.environ for name in SUBMITTED_VARIABLES)


def sent_to_cluster(arguments: argparse.Namespace, words: Sequence[str]) -> int | None:
    """Do what the options say before the subcommand runs.

    Args:
        arguments: as parsed; ``engine`` becomes Spark.
        words: the words of the command.

    Returns:
        None if this process goes on and is the driver, else the exit code of the run on the cluster.

    Raises:
        ConfigurationError: the options contradict each other, or name files that the cluster cannot reach.
    """
    if not hasattr(arguments, "master"):
        return None
    if arguments.master is None:
        _refuse_others(arguments)
        _use_given_session(arguments)
        return None
    if arguments.engine == "local":
        raise ConfigurationError("--engine local does the work in this process: leave out --master")
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError("--master: pyspark is not installed: pip install hive-mutation-api[spark]")
    arguments.engine = "spark"
    settings = _settings(arguments)
    options = ["--master", arguments.master, "--deploy-mode", arguments.deploy_mode]
    options += [word for name, text in settings.items() for word in ("--conf", f"{name}={text}")]
    if arguments.deploy_mode == CLIENT:
        os.environ[SUBMIT_VARIABLE] = shlex.join([*options, "pyspark-shell"])
        if _PYTHON in settings:  # PySpark itself reads only the variable
            os.environ["PYSPARK_PYTHON"] = settings[_PYTHON]
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        _find_java()
        return None
    _check_locations(arguments)
    _find_java()
    command = [
        str(_spark_home() / "bin" / "spark-submit"),
        *options,
        str(_MAIN),
        *words_without_options(words),
    ]
    return run_submit(command, arguments.subcommand)


def _use_given_session(arguments: argparse.Namespace) -> None:
    """What spark-submit started does its work there, however little it is."""
    if "PYSPARK_GATEWAY_PORT" in os.environ and arguments.engine == "auto":
        arguments.engine = "spark"
    if is_driver_on_yarn():
        name = arguments.subcommand
        if hasattr(arguments, "refuse_usage"):
            arguments.refuse_usage = telling_yarn(name, arguments.refuse_usage)
        register_driver(f"hive-mutate {name}")


def words_without_options(words: Sequence[str]) -> list[str]:
    """The words of a command less the options of this module."""
    kept, is_value = [], False
    for word in words:
        if is_value:
            is_value = False
        elif word in _OPTIONS_WITH_VALUE:
            is_value = True
        elif not word.startswith(tuple(f"{option}=" for option in _OPTIONS_WITH_VALUE)):
            kept.append(word)
    return kept


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Spark's settings; the user's win over ours."""
    ours = {"spark.app.name": f"hive-mutate {arguments.subcommand}"}
    if arguments.deploy_mode == CLUSTER:
        # A second attempt would run the whole command again, perhaps after the first has committed.
        ours["spark.yarn.maxAppAttempts"] = "1"
    if arguments.python_archive is not None:
        ours["spark.archives"] = f"{arguments.python_archive}#{ARCHIVE_FOLDER}"
        ours[_PYTHON] = f"./{ARCHIVE_FOLDER}/bin/python"
        if arguments.deploy_mode == CLIENT:
            ours["spark.pyspark.driver.python"] = sys.executable
    for pair in arguments.spark_conf:
        name, equals, text = pair.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigurationError(f"--spark-conf {pair}: expected spark.NAME=VALUE")
        ours[name] = text
    return ours


def _refuse_others(arguments: argparse.Namespace) -> None:
    given = {
        "--deploy-mode": arguments.deploy_mode != CLIENT,
        "--spark-conf": arguments.spark_conf,
        "--python-archive": arguments.python_archive,
    }
    for option, is_given in given.items():
        if is_given:
            raise ConfigurationError(
                f"{option} is for a cluster: say which by --master (local[2] is one, too)"
            )


def _check_locations(arguments: argparse.Namespace) -> None:
    """Refuse files of this machine, which the driver on the cluster does not have."""
    for name, value in vars(arguments).items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Location) and each.scheme == "file":
                raise ConfigurationError(
                    f"{each.shown} ({name}) lies on this machine, and with --deploy-mode cluster the driver "
                    "runs on another: put it where both can reach it, such as hdfs://…, or use --deploy-mode "
                    "client"
                )
    if getattr(arguments, "hive_conf", None) is not None:
        raise ConfigurationError(
            "--hive-conf names a file of this machine, and with --deploy-mode cluster the driver runs on "
            "another: name the metastore by --metastore, or put hive-site.xml into HADOOP_CONF_DIR, which "
            "Spark takes along"
        )


def _find_java() -> None:
    from mutation_api.spark.versions import java_versions  # needs pyspark

    os.environ["JAVA_HOME"] = str(quiet_java_home(java_versions()[-1]))


def _spark_home() -> Path:
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    return spark_jars().parent
