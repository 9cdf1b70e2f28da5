"""How a command that runs on YARN in cluster mode ends, told to whoever submitted it.

What the driver prints goes to the log of its container. The one text that YARN itself hands on is the
application's diagnostics: its pages show it, ``yarn application -status`` prints it, and so does
``spark-submit`` when the application has failed. So a driver that fails gives YARN its exit code and message,
and the program that submitted it finds both in what ``spark-submit`` writes.

Source: org.apache.spark.deploy.yarn.Client (``run``), the same from Spark 3.5 to 4.3.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence

from mutation_api.cli.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from mutation_api.cli.terminal import say_aside

__all__ = ["is_driver_on_yarn", "register_driver", "run_submit", "tell_yarn", "telling_yarn"]

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
        from mutation_api.spark.yarn_failure import fail_on_yarn  # needs pyspark

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
