"""Arguments that send a subcommand to a cluster, and the cluster's answer.

How a command that runs on YARN in cluster mode ends, told to whoever submitted it.

What the driver prints goes to the log of its container. The one text that YARN itself hands on is the
application's diagnostics: its pages show it, ``yarn application -status`` prints it, and so does
``spark-submit`` when the application has failed. So a driver that fails gives YARN its exit code and message,
and the program that submitted it finds both in what ``spark-submit`` writes.

Source: org.apache.spark.deploy.yarn.Client (``run``), the same from Spark 3.5 to 4.3.

Options that send a subcommand's work to a cluster.

In client mode this process is the driver: the options go to PySpark's own variable, and the session starts
with them. In cluster mode the driver runs on the cluster: ``spark-submit`` takes this program there, with
the words of the command less these options, and this process says how the command ended there. Started by
``spark-submit`` itself, a subcommand uses the session that it was given.
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
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE, say_aside
from mutation_api.errors import ConfigurationError
from mutation_api.storage.location import Location

__all__ = [
    "SUBMITTED_VARIABLES",
    "add_cluster_arguments",
    "is_driver_on_yarn",
    "register_driver",
    "run_submit",
    "sent_to_cluster",
    "spark_is_given",
    "tell_yarn",
    "telling_yarn",
    "words_without_options",
]


_ON_YARN = ("PYSPARK_GATEWAY_PORT", "SPARK_YARN_STAGING_DIR")
"""Spark sets both in the container of a driver that is Python, and nowhere else."""

_DIAGNOSTICS = re.compile(
    r"Application diagnostics message: (?P<text>.*?)(?=^Exception in thread |\Z)", re.DOTALL | re.MULTILINE
)
_ENDED = re.compile(r"hive-mutate ended with (?P<code>\d+): (?P<text>.*)", re.DOTALL)
_EXITED = re.compile(r"exited with status (?P<code>\d+)")
_APPLICATION = re.compile(r"application_\d+_\d+")


def is_driver_on_yarn() -> bool:
    """Whether this program is a driver in a container of YARN."""
    return all(name in os.environ for name in _ON_YARN)


def register_driver(app_name: str) -> None:
    """Start the session, by which YARN gets to know the driver: it takes no message from another.

    To YARN a driver that ended well without a session would be a failure, too.
    """
    from pyspark.sql import SparkSession  # takes long to import

    SparkSession.builder.appName(app_name).getOrCreate()


def tell_yarn(text: str, code: int) -> None:
    """End the application as failed, with this message, if this is a driver on YARN; Spark then ends it soon.

    Without effect where there was no session; YARN knows the exit code alone then.
    """
    if is_driver_on_yarn():
        sys.stdout.flush()
        from mutation_api.spark.worker_errors import fail_on_yarn  # needs pyspark

        fail_on_yarn(f"hive-mutate ended with {code}: {text}", code)


def telling_yarn(name: str, refuse: Callable[[str], None]) -> Callable[[str], None]:
    """What refuses wrong usage of a subcommand, also towards YARN."""

    def told(message: str) -> None:
        tell_yarn(f"hive-mutate {name}: error: {message}", EXIT_USAGE)
        refuse(message)

    return told


def run_submit(command: Sequence[str], name: str) -> int:
    """Run ``spark-submit`` in cluster mode, pass on what it writes, and say at the end why it failed.

    Args:
        command: the program with its words.
        name: of the subcommand, for messages.

    Returns:
        The exit code of the command on the cluster, as far as it is known; else 1 for a failure.
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
    """Print each line as it comes, and keep those in which something is looked for."""
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
        return "nothing is known of an application on the cluster yet"
    return f"{application} goes on in the cluster; to end it: yarn application -kill {application}"


def _ending(output: str, name: str) -> tuple[int, str]:
    """Exit code and message of a command that failed on the cluster."""
    diagnostics = _DIAGNOSTICS.search(output)
    text = diagnostics["text"].strip() if diagnostics else ""
    ended = _ENDED.search(text)
    if ended:
        return int(ended["code"]), ended["text"]
    exited = _EXITED.search(text)
    code = EXIT_USAGE if exited and int(exited["code"]) == EXIT_USAGE else EXIT_FAILED
    application = _application([output])
    if application is None:
        return code, f"hive-mutate {name}: spark-submit failed before it had an application on the cluster"
    reason = f": {text.splitlines()[0]}" if text else ""
    return code, (
        f"hive-mutate {name}: {application} failed on the cluster{reason}; "
        f"what it wrote: yarn logs -applicationId {application}"
    )


CLIENT, CLUSTER = "client", "cluster"
ARCHIVE_FOLDER = "python"

SUBMIT_VARIABLE = "PYSPARK_SUBMIT_ARGS"
SUBMITTED_VARIABLES = ("PYSPARK_GATEWAY_PORT", SUBMIT_VARIABLE, "SPARK_CONF_DIR", "MASTER")
"""With one of these the user has said which Spark it is: spark-submit and our options, the others by hand."""

_OPTIONS_WITH_VALUE = ("--master", "--deploy-mode", "--spark-conf", "--python-archive")
_PYTHON = "spark.pyspark.python"
_MAIN = Path(__file__).with_name("main.py")


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
