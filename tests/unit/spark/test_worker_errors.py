"""A worker's error comes back as our own class and message, without Spark's stack."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from mutation_api.errors import RecordSequenceError, RecordValueError, WorkerError
from mutation_api.spark.worker_errors import translated_worker_errors, worker_error_from_text

SIMPLE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/job.py", line 24, in write
    raise RecordValueError("table a.b: bad")
mutation_api.errors.RecordValueError: table a.b, partition ds=x: 300 does not fit tinyint
"""

WITH_JAVA_STACK = """Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent
failure: Lost \\ task 1.3 in stage 0.0 (TID 7) (h executor 0): org.apache.spark.api.python.PythonException:
[PYTHON_EXCEPTION] \\ Traceback (most recent call last):
  File "/x/worker.py", line 1, in process
OSError: disk full

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/x/worker.py", line 2, in process
mutation_api.errors.RecordSequenceError: (5, 0, 3) follows (5, 0, 3)
in group ds=x/0
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:97)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
"""

FOREIGN = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/users.py", line 7, in parse
    int(text)
ValueError: invalid literal for int() with base 10: 'x'
\tat org.apache.spark.Something(Something.scala:1)
"""


def test_class_and_message_come_back() -> None:
    """The last line of the traceback names our error."""
    error = worker_error_from_text("writing", SIMPLE)
    assert type(error) is RecordValueError
    assert str(error) == "table a.b, partition ds=x: 300 does not fit tinyint"


def test_last_of_a_chain_wins_and_java_is_cut_off() -> None:
    """In a chain of causes the error raised last counts; lines of the JVM are not part of its message."""
    error = worker_error_from_text("writing", WITH_JAVA_STACK)
    assert type(error) is RecordSequenceError
    assert str(error) == "(5, 0, 3) follows (5, 0, 3)\nin group ds=x/0"


def test_an_error_that_is_not_ours_becomes_a_worker_error() -> None:
    """A foreign error is quoted by its own last line."""
    error = worker_error_from_text("table a.b: writing", FOREIGN)
    assert type(error) is WorkerError
    assert str(error) == (
        "table a.b: writing: the Spark job failed: ValueError: invalid literal for int() with base 10: 'x'"
    )


@pytest.mark.parametrize("name", ["NoSuchError", "annotations", "__all__"])
def test_an_unknown_class_name_is_no_class_of_ours(name: str) -> None:
    """Only an error class of the tree is raised by its name."""
    error = worker_error_from_text("writing", f"Traceback\nmutation_api.errors.{name}: text")
    assert type(error) is WorkerError
    assert "text" in str(error)


def test_a_java_failure_is_quoted_by_its_first_lines() -> None:
    """Without a Python traceback the first lines are quoted, the stack is not."""
    error = worker_error_from_text("writing", "Job 3 cancelled\n because of x\n\tat org.apache.A\n\tat B")
    assert str(error) == "writing: the Spark job failed: Job 3 cancelled because of x"


def test_an_expression_without_a_value_is_an_error_in_values() -> None:
    """Overflows, casts that fail and divisions by zero are data exceptions to the SQL standard."""
    text = """[ARITHMETIC_OVERFLOW] overflow. Use 'try_add' to return NULL instead. SQLSTATE: 22003
== SQL (line 1, position 2) ==
(source.n + 1)
 ^^^^^^^^^^^^
	at org.apache.spark.sql.errors.ExecutionErrors.arithmeticOverflowError(ExecutionErrors.scala:150)"""
    error = worker_error_from_text("merging into d.t", text)
    assert type(error) is RecordValueError
    assert str(error).startswith(
        "merging into d.t: an expression cannot be evaluated for a row: [ARITHMETIC_OVERFLOW] overflow."
    )


@pytest.mark.parametrize("cls", [PySparkException, Py4JError])
def test_the_block_raises_ours_without_a_context_to_print(cls: type[Exception]) -> None:
    """The raised error prints without Spark's 200 lines."""
    with pytest.raises(RecordValueError) as caught, translated_worker_errors("writing"):
        raise cls(SIMPLE)
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


def test_mistakes_in_the_callers_dataframe_go_through() -> None:
    """AnalysisException is the caller's and stays as it is; so do errors that are not Spark's."""
    with pytest.raises(AnalysisException), translated_worker_errors("writing"):
        raise AnalysisException("no such column")
    with pytest.raises(ZeroDivisionError), translated_worker_errors("writing"):
        raise ZeroDivisionError


@pytest.mark.parametrize("name", ["mutation_api", "metastore_client.valid_ids", "pyarrow"])
def test_a_worker_with_another_python_is_told_apart(name: str) -> None:
    """Workers without our packages run another Python; the message says what to set and to install."""
    error = worker_error_from_text(
        "writing", f"Traceback\n  x\nModuleNotFoundError: No module named '{name}'"
    )
    assert type(error) is WorkerError
    assert f"no module '{name}'" in str(error)
    assert "PYSPARK_PYTHON" in str(error)
    assert "install hive-mutation-api" in str(error)
    assert "hive-mutate pack makes one, commands take it as --python-archive" in str(error)


def test_the_callers_own_missing_module_is_quoted() -> None:
    """A module of the caller's that is missing on the workers is not ours to explain."""
    error = worker_error_from_text(
        "writing", "Traceback (most recent call last)\nModuleNotFoundError: No module named 'mine'"
    )
    assert str(error).endswith("ModuleNotFoundError: No module named 'mine'")
