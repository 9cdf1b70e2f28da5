"""fail_on_yarn: a driver in a container of YARN ends its application as failed, with a message of its own.

Spark itself tells YARN no more of a Python driver than its exit code.
"""

from __future__ import annotations

import contextlib

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from mutation_api.spark.jvm import jvm_of_process

__all__ = ["fail_on_yarn"]

_MASTER = "org$apache$spark$deploy$yarn$ApplicationMaster$$master"


def fail_on_yarn(message: str, code: int) -> None:
    """End the application as failed; Spark then ends this process soon, and the attempt with it.

    Without effect where there was no session, since YARN does not know the driver then; and in a Spark that
    does this otherwise.

    Args:
        message: the application's diagnostics, for YARN's pages and for whoever submitted it.
        code: exit code of the container.

    Source: org.apache.spark.deploy.yarn.ApplicationMaster (``finish``), the same from Spark 3.5 to 4.3.
    """
    jvm = jvm_of_process()
    if jvm is None:
        return
    # The JVM may be gone before it has answered.
    with contextlib.suppress(Py4JError, OSError, TypeError):
        companion = getattr(getattr(jvm.org.apache.spark.deploy.yarn, "ApplicationMaster$"), "MODULE$")
        status = jvm.org.apache.hadoop.yarn.api.records.FinalApplicationStatus.FAILED
        getattr(companion, _MASTER)().finish(status, code, message)
