"""Options that send a subcommand's work to a cluster, and the cluster's answer.

In client mode this process is the driver: the options go into PySpark's own environment variable, and the
session starts with them. In cluster mode the driver runs on the cluster: ``spark-submit`` sends this program
there, with the arguments of the command but without these options. This process then reports how the command
ended on the cluster. A subcommand that was started by ``spark-submit`` uses the session of that program.

The driver's output goes to the log of its container. The only message that YARN itself passes on is the
application's diagnostics: YARN's web pages show it, ``yarn application -status`` prints it, and
``spark-submit`` prints it when the application has failed. A driver that fails therefore passes its exit code
and message to YARN, and the submitting program finds both in the output of ``spark-submit``.

Source: org.apache.spark.deploy.yarn.Client (``run``), unchanged from Spark 3.5 to 4.3.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from metastore_client.java import quiet_java_home, spark_jars
from mutation_api.cli.parsers import AnyParser, add_repeatable
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE, say_aside
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

_ON_YARN = ("PYSPARK_GATEWAY_PORT", "SPARK_YARN_STAGING_DIR")
"""Spark sets both variables in the container of a Python driver, and nowhere else."""

_DIAGNOSTICS = re.compile(
    r"Application diagnostics message: (?P<text>.*?)(?=^Exception in thread |\Z)", re.DOTALL | re.MULTILINE
)
_ENDED = re.compile(r"hive-mutate ended with (?P<code>\d+): (?P<text>.*)", re.DOTALL)
_EXITED = re.compile(r"exited with status (?P<code>\d+)")
_APPLICATION = re.compile(r"application_\d+_\d+")


def is_driver_on_yarn() -> bool:
    """Return True if this program is a driver in a YARN container."""
    return all(name in os.environ for name in _ON_YARN)


def register_driver(app_name: str) -> None:
    """Start the session, which registers the driver with YARN.

    YARN accepts messages only from a registered driver. It would also consider a driver that ended
    successfully without a session to have failed.
    """
    from pyspark.sql import SparkSession  # takes long to import

    SparkSession.builder.appName(app_name).getOrCreate()


def tell_yarn(text: str, code: int) -> None:
    """If this is a driver on YARN, end the application as failed with this message. Spark then stops it.

    This has no effect if there was no session; YARN then gets only the exit code.
    """
    if is_driver_on_yarn():
        sys.stdout.flush()
        from mutation_api.spark.worker_errors import fail_on_yarn  # needs pyspark

        fail_on_yarn(f"hive-mutate ended with {code}: {text}", code)


def telling_yarn(name: str, refuse: Callable[[str], None]) -> Callable[[str], None]:
    """Return a handler of usage errors that also reports the error to YARN."""

    def told(message: str) -> None:
        tell_yarn(f"hive-mutate {name}: error: {message}", EXIT_USAGE)
        refuse(message)

    return told


def run_submit(command: Sequence[str], name: str) -> int:
    """Run ``spark-submit`` in cluster mode, pass on its output, and at the end print the reason if it failed.

    Args:
        command: the program and its arguments.
        name: the name of the subcommand, for messages.

    Returns:
        The exit code of the command on the cluster. If it is not known, 1 for a failure.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
    ) as program:
        try:
            _pass_on(program.stderr or (), lines)
        except KeyboardInterrupt:
            say_aside(_goes_on(_application(lines)))
            raise
    if program.returncode == EXIT_OK:
        return EXIT_OK
    code, text = _ending("".join(lines), name)
    say_aside(text)
    return code


def _pass_on(source: Iterable[str], lines: list[str]) -> None:
    """Print each line when it arrives, and store the lines that are searched later."""
    is_told = False
    for line in source:
        say_aside(line, end="")
        is_told = is_told or _DIAGNOSTICS.search(line) is not None
        if is_told or (not lines and _APPLICATION.search(line)):
            lines.append(line)


def _application(lines: Sequence[str]) -> str | None:
    found = next(filter(None, map(_APPLICATION.search, lines)), None)
    return found and found[0]


def _goes_on(application: str | None) -> str:
    if application is None:
        return "no application id has been reported by the cluster yet"
    return f"{application} continues on the cluster; to end it: yarn application -kill {application}"


def _ending(output: str, name: str) -> tuple[int, str]:
    """Return the exit code and the message of a command that failed on the cluster."""
    diagnostics = _DIAGNOSTICS.search(output)
    text = diagnostics["text"].strip() if diagnostics else ""
    ended = _ENDED.search(text)
    if ended:
        return int(ended["code"]), ended["text"]
    exited = _EXITED.search(text)
    code = EXIT_USAGE if exited and int(exited["code"]) == EXIT_USAGE else EXIT_FAILED
    application = _application([output])
    if application is None:
        return (
            code,
            f"hive-mutate {name}: spark-submit failed before it started an application on the cluster",
        )
    reason = f": {text.splitlines()[0]}" if text else ""
    return code, (
        f"hive-mutate {name}: {application} failed on the cluster{reason}; "
        f"for its output: yarn logs -applicationId {application}"
    )


CLIENT, CLUSTER = "client", "cluster"
ARCHIVE_FOLDER = "python"

SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
SUBMITTED_VARIABLES = ("PYSPARK_GATEWAY_PORT", SUBMIT_VARIABLE, "SPARK_CONF_DIR", "MASTER")
"""Environment variables that show that the user has chosen a Spark installation.

spark-submit and the options of this module set the first two; the user sets the others.
"""

_OPTIONS_WITH_VALUE = ("--master", "--deploy-mode", "--spark-conf", "--python-archive")
_PYTHON = "spark.pyspark.python"
_MAIN = Path(__file__).with_name("main.py")


def add_cluster_arguments(parser: AnyParser) -> None:
    """Declare ``--master``, ``--deploy-mode``, ``--spark-conf`` and ``--python-archive``."""
    group = parser.add_argument_group("on a cluster (implies --engine spark)")
    group.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs: yarn, spark://HOST:7077, k8s://… or local[N]. YARN and HDFS are found "
        "through HADOOP_CONF_DIR (default: the master of spark-submit, otherwise this machine)",
    )
    group.add_argument(
        "--deploy-mode",
        choices=(CLIENT, CLUSTER),
        default=CLIENT,
        help="where the driver runs: in this process (client) or on the cluster (cluster), where files must "
        "be locations such as hdfs://… and the output goes to the log of the container (default: client)",
    )
    add_repeatable(
        group, "--spark-conf", "NAME=VALUE", "Spark setting, such as spark.executor.memory=4g (repeatable)"
    )
    group.add_argument(
        "--python-archive",
        metavar="FILE",
        help='archive with Python for machines that lack it, written by "hive-mutate pack": a path or hdfs://…',
    )


def spark_is_given() -> bool:
    """Return True if options, spark-submit or Spark's variables choose a Spark installation."""
    return any(name in os.environ for name in SUBMITTED_VARIABLES)


def sent_to_cluster(arguments: argparse.Namespace, words: Sequence[str]) -> int | None:
    """Apply the cluster options before the subcommand runs.

    Args:
        arguments: the parsed arguments. Their ``engine`` is set to Spark.
        words: the command-line arguments, unchanged.

    Returns:
        None if this process is the driver and continues. Otherwise the exit code of the run on the cluster.

    Raises:
        ConfigurationError: If the options contradict each other, or name files that the cluster cannot reach.
    """
    if not hasattr(arguments, "master"):
        return None
    if arguments.master is None:
        _refuse_others(arguments)
        _use_given_session(arguments)
        return None
    if arguments.engine == "local":
        raise ConfigurationError(
            "--engine local does the work in this process and needs no cluster: leave out --master"
        )
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
    """Select the Spark engine if spark-submit started this program, even for a small change set."""
    if "PYSPARK_GATEWAY_PORT" in os.environ and arguments.engine == "auto":
        arguments.engine = "spark"
    if is_driver_on_yarn():
        name = arguments.subcommand
        if hasattr(arguments, "refuse_usage"):
            arguments.refuse_usage = telling_yarn(name, arguments.refuse_usage)
        register_driver(f"hive-mutate {name}")


def words_without_options(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command without the options of this module."""
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
    """Return the settings for Spark. The user's settings override those of this module."""
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
                f"{option} needs a cluster: name it with --master (local[2] counts as one)"
            )


def _check_locations(arguments: argparse.Namespace) -> None:
    """Refuse files on this machine, which the driver on the cluster cannot read."""
    for name, value in vars(arguments).items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Location) and each.scheme == "file":
                raise ConfigurationError(
                    f"{each.shown} ({name}) is on this machine, but with --deploy-mode cluster the driver "
                    "runs on another: put it where both can reach it, such as hdfs://…, or use --deploy-mode "
                    "client"
                )
    if getattr(arguments, "hive_conf", None) is not None:
        raise ConfigurationError(
            "--hive-conf names a file on this machine, but with --deploy-mode cluster the driver runs on "
            "another: name the metastore with --metastore, or put hive-site.xml into HADOOP_CONF_DIR, which "
            "Spark sends to the cluster"
        )


def _find_java() -> None:
    from mutation_api.spark.versions import java_versions  # needs pyspark

    os.environ["JAVA_HOME"] = str(quiet_java_home(java_versions()[-1]))


def _spark_home() -> Path:
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    return spark_jars().parent
