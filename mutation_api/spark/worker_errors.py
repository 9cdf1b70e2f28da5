"""Failures of a Spark job, converted back to this library's errors on the driver.

A worker's error reaches the driver only as a string, inside a pyspark exception. Its message repeats Python's
traceback and often the JVM's. The last line of Python's traceback contains the error's class and message.

A driver in a YARN container ends its application as failed, with its own message (:func:`fail_on_yarn`).
Spark itself reports only the exit code of a Python driver to YARN.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator

import pyspark.sql.functions as sf
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column

from mutation_api import errors
from mutation_api.errors import MutationError, RecordValueError, WorkerError
from mutation_api.spark.jvm import jvm_of_process
from mutation_api.spark.versions import is_data_exception

logger = logging.getLogger(__name__)

OUR_ERROR = re.compile(
    r"^(?:\S*: )*mutation_api\.errors\.(?P<name>\w+): (?P<message>.*?)"
    r"(?=\n\s*\n|\n\s+at |\n\s*SQLSTATE|\n\s*Driver stacktrace|\s*\Z)",
    re.MULTILINE | re.DOTALL,
)
PYTHON_ERROR = re.compile(r"^(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
OUR_MODULES = r"(?:mutation_api|metastore_client|numpy|pyarrow|pyorc)\b[\w.]*"
MISSING_MODULE = re.compile(rf"^ModuleNotFoundError: No module named '(?P<name>{OUR_MODULES})'", re.MULTILINE)
FIRST_LINES = 3
LONGEST_CAUSE = 1000


@contextlib.contextmanager
def translated_worker_errors(what: str) -> Iterator[None]:
    """Translate a failed Spark job within the block into a library error, without pyspark's long stack.

    If a worker raised a library error, the same error is raised again with its class and message. Any other
    failure becomes a WorkerError that starts with ``what`` and quotes the first lines. An AnalysisException,
    which Spark raises for mistakes in the caller's own DataFrame, passes unchanged. The full message is
    logged at level DEBUG.
    """
    try:
        yield
    except AnalysisException:
        raise
    except (PySparkException, Py4JError) as error:
        text = str(error)
        logger.debug("%s: Spark's own report: %s", what, text)
        translated = worker_error_from_text(what, text)
    else:
        return
    raise translated from None


def raised_in_job(error: type[MutationError], *message: Column | str) -> Column:
    """Return a column that raises ``error`` when it is evaluated, without Python in the tasks.

    :func:`translated_worker_errors` raises that error again. Parts of the message that are Columns must not
    be null or contain line breaks (JSON strings do not).
    """
    parts = [part if isinstance(part, Column) else sf.lit(part) for part in message]
    # Spark adds text before and after the message. Line breaks separate it.
    name = f"\n{error.__module__}.{error.__name__}: "
    return sf.raise_error(sf.concat(sf.lit(name), *parts, sf.lit("\n")))


def worker_error_from_text(what: str, text: str) -> MutationError:
    """Return the library error that a Spark failure's message contains, or one that quotes the message.

    The latter is a RecordValueError if the caller's expression could not be evaluated, or else a WorkerError.
    """
    found = list(OUR_ERROR.finditer(text))
    if found:
        # Take the last one: an error that was raised from another library error is printed after it.
        cls = getattr(errors, found[-1]["name"], WorkerError)
        if isinstance(cls, type) and issubclass(cls, MutationError):
            return cls(found[-1]["message"].strip())
    missing = MISSING_MODULE.search(text)
    if missing:
        return WorkerError(
            f"{what}: Spark's Python workers have no module {missing['name']!r}: they run a different "
            f"Python from this program ({sys.executable}), or hive-mutation-api is not installed there. On "
            "this machine, set PYSPARK_PYTHON to that program before the session starts "
            "(local_spark_session does so). On a cluster, install hive-mutation-api on every worker, or "
            "ship an environment that contains it: hive-mutate pack makes one, commands take it as "
            "--python-archive, and other programs as spark.archives"
        )
    if is_data_exception(text):
        return RecordValueError(f"{what}: an expression cannot be evaluated for a row: {_short_cause(text)}")
    return WorkerError(f"{what}: the Spark job failed: {_short_cause(text)}")


def _short_cause(text: str) -> str:
    before_java_stack = text.split("\n\tat ")[0]
    if "Traceback (most recent call last)" in before_java_stack:
        python_errors = PYTHON_ERROR.findall(before_java_stack)
        if python_errors:
            return str(python_errors[-1])[:LONGEST_CAUSE]
    lines = [line.strip() for line in before_java_stack.splitlines() if line.strip()]
    return " ".join(lines[:FIRST_LINES])[:LONGEST_CAUSE]


_MASTER = "org$apache$spark$deploy$yarn$ApplicationMaster$$master"


def fail_on_yarn(message: str, code: int) -> None:
    """End the application as failed.

    Spark then ends this process, and with it the attempt, shortly afterwards.

    This has no effect if there was no session, since the driver is then not registered, or in a Spark
    version that does this differently.

    Args:
        message: the application's diagnostics, for YARN's pages and for the user who submitted it.
        code: exit code of the container.

    Source: org.apache.spark.deploy.yarn.ApplicationMaster (``finish``), the same from Spark 3.5 to 4.3.
    """
    jvm = jvm_of_process()
    if jvm is None:
        return
    # The JVM may end before it has answered.
    with contextlib.suppress(Py4JError, OSError, TypeError):
        companion = getattr(getattr(jvm.org.apache.spark.deploy.yarn, "ApplicationMaster$"), "MODULE$")
        status = jvm.org.apache.hadoop.yarn.api.records.FinalApplicationStatus.FAILED
        getattr(companion, _MASTER)().finish(status, code, message)
