"""A real YARN for tests: its ResourceManager and NodeManagers in one JVM, which ends with this process.

Its containers are programs of their own with what YARN gives them: no environment or folders of the tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from judges.hive.judge import SPEED_OPTIONS
from judges.jars import fetch_all, read_pins
from judges.java import compiled
from judges.process import START_TIMEOUT_SECONDS, JudgeProcess, ProcessJudge
from judges.storages.hdfs_cluster import KerberosKeys
from metastore_client.java import ADD_OPENS, find_java, spark_jars

YARN_HOSTS = ("localhost", "127.0.0.2")
"""Names of this machine, one a NodeManager; to Spark each is a machine. 127.0.0.1 would be localhost, too."""

SOURCES = Path(__file__).parent / "miniyarn"

_ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8")
_PASSED = ("KRB5_CONFIG", "JDK_JAVA_OPTIONS")
"""What all programs on a machine would find in /etc."""
_SETTINGS: Mapping[str, str] = {
    "yarn.nodemanager.resource.memory-mb": "6144",
    "yarn.nodemanager.resource.cpu-vcores": "4",
    "yarn.scheduler.minimum-allocation-mb": "64",
    "yarn.nodemanager.vmem-check-enabled": "false",  # Java reserves far more than it uses
    "yarn.nodemanager.pmem-check-enabled": "true",
    "yarn.nodemanager.disk-health-checker.enable": "false",  # a full disk is not what is tested
    "yarn.nodemanager.env-whitelist": ",".join(("JAVA_HOME", *_PASSED)),
    "yarn.nodemanager.localizer.cache.cleanup.interval-ms": "3600000",
    "yarn.nodemanager.sleep-delay-before-sigkill.ms": "100",
    "yarn.nodemanager.delete.debug-delay-sec": "0",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
    "yarn.scheduler.capacity.schedule-asynchronously.enable": "false",
}


@dataclass(frozen=True)
class YarnApplication:
    """An application as the ResourceManager knows it; ``attempts`` are those of its master."""

    id: str
    name: str
    user: str
    state: str
    final_status: str
    attempts: int
    diagnostics: str


class MiniYarn(ProcessJudge):
    """One running YARN over an HDFS, with a NodeManager under each name of this machine."""

    def __init__(
        self,
        work_directory: Path,
        *,
        hosts: Sequence[str] = YARN_HOSTS,
        configuration: Mapping[str, str],
        kerberos: KerberosKeys | None = None,
    ) -> None:
        """Start it.

        Args:
            work_directory: holds the containers' folders and logs, and its own log.
            hosts: a name of this machine for each NodeManager.
            configuration: Hadoop's properties, with those of the HDFS.
            kerberos: require Kerberos, with these keys.

        Raises:
            JudgeError: Java, a jar or the compiler is missing, or it does not come up.
        """
        jars = [*fetch_all(read_pins(SOURCES / "jars.txt")), *sorted(spark_jars().glob("*.jar"))]
        self._secure = {} if kerberos is None else _secure(kerberos)
        java = find_java()
        data = work_directory / "data"
        data.mkdir(parents=True)
        settings = {**_SETTINGS, **self._secure, **configuration}
        conf = _written(settings, work_directory / "conf")
        class_path = os.pathsep.join(map(str, (compiled([SOURCES], jars), conf, *jars)))
        passed = [f"{name}={os.environ[name]}" for name in _PASSED if name in os.environ]
        command = ["/usr/bin/env", "-i", *_ENVIRONMENT, f"JAVA_HOME={java.parent.parent}", *passed, str(java)]
        command += [*ADD_OPENS, *SPEED_OPTIONS, "-Xmx768m", "-cp", class_path, "judge.MiniYarn", str(data)]
        command += [",".join(hosts), *(f"{name}={text}" for name, text in settings.items())]
        self._work_directory = work_directory
        self._hosts = tuple(hosts)
        super().__init__(JudgeProcess("YARN", command, work_directory / "yarn.log"))
        with self._stopped_on_failure():
            self._addresses = self._ask("settings", timeout_seconds=START_TIMEOUT_SECONDS)

    @property
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""
        security = ", Kerberos" if self._secure else ""
        return f"YARN 3.5.0 ({len(self._hosts)} NodeManagers{security}, Maven Central)"

    @property
    def settings(self) -> dict[str, str]:
        """Properties for a client, in addition to those of its HDFS."""
        principal = {name: text for name, text in self._secure.items() if name.endswith(".principal")}
        return {**{name: str(text) for name, text in self._addresses.items()}, **principal}

    def applications(self) -> list[YarnApplication]:
        """All that were submitted, the newest last."""
        found = [YarnApplication(**each) for each in self._ask("applications")["applications"]]
        return sorted(found, key=lambda each: each.id)  # YARN gives them in any order

    def containers(self) -> list[str]:
        """Ids of the running containers."""
        return [str(each["id"]) for each in self._ask("containers")["containers"]]

    def logs(self, application: str) -> str:
        """What the containers of an application wrote."""
        files = sorted((self._work_directory / "data").glob(f"node*/logs/{application}/*/*"))
        return "\n".join(f"--- {file}\n{file.read_text('utf-8', 'replace')}" for file in files)


def _written(settings: Mapping[str, str], folder: Path) -> Path:
    """A folder with the settings in a file, for parts of YARN that read them anew from the class path."""
    folder.mkdir(parents=True)
    entries = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(text)}</value></property>\n"
        for name, text in settings.items()
    )
    (folder / "core-site.xml").write_text(f"<configuration>\n{entries}</configuration>\n", encoding="utf-8")
    return folder


def _secure(kerberos: KerberosKeys) -> dict[str, str]:
    roles = ("resourcemanager", "nodemanager")
    return {
        **{f"yarn.{role}.principal": kerberos.principal for role in roles},
        **{f"yarn.{role}.keytab": str(kerberos.keytab) for role in roles},
        **kerberos.client_settings,
        "hadoop.security.authorization": "false",
    }
