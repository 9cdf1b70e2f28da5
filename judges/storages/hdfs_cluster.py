"""A real HDFS for tests: its NameNodes and DataNodes in one JVM, which ends with this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judges.hive.judge import SPEED_OPTIONS
from judges.jars import fetch_all, read_pins
from judges.java import compiled
from judges.process import START_TIMEOUT_SECONDS, JudgeProcess, ProcessJudge
from metastore_client.java import ADD_OPENS, find_java, spark_jars

NAME_SERVICE = "cluster"
SOURCES = Path(__file__).parent / "minihdfs"


@dataclass(frozen=True)
class KerberosKeys:
    """Identity of a cluster with Kerberos.

    ``principal`` is that of its NameNodes and DataNodes, ``keytab`` holds its keys.
    """

    principal: str
    keytab: Path

    @property
    def server_settings(self) -> dict[str, str]:
        """Settings of servers, in addition to those of their clients."""
        return {
            "hadoop.security.authorization": "true",
            "hadoop.proxyuser.hive.hosts": "*",  # compacts as the owner of a directory
            "hadoop.proxyuser.hive.groups": "*",
            "dfs.namenode.keytab.file": str(self.keytab),
            "dfs.datanode.keytab.file": str(self.keytab),
            "dfs.datanode.kerberos.principal": self.principal,
            "dfs.block.access.token.enable": "true",
            "ignore.secure.ports.for.testing": "true",
        }

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of clients: everything that is sent is encrypted."""
        return {
            "hadoop.security.authentication": "kerberos",
            "hadoop.rpc.protection": "privacy",
            "dfs.data.transfer.protection": "privacy",
            "dfs.namenode.kerberos.principal": self.principal,
        }


class MiniHdfs(ProcessJudge):
    """One running HDFS below a work folder.

    Its superuser is the user of this process; the judge executes what needs one (modes, owners, quotas).
    """

    def __init__(
        self,
        work_directory: Path,
        *,
        data_nodes: int = 1,
        name_nodes: int = 1,
        configuration: Mapping[str, str] | None = None,
        kerberos: KerberosKeys | None = None,
        is_measured: bool = False,
    ) -> None:
        """Start it.

        Args:
            work_directory: holds its data and its log.
            data_nodes: number of DataNodes.
            name_nodes: 1, or 2 for a name service whose first NameNode is active.
            configuration: Hadoop's properties for its servers.
            kerberos: require Kerberos, with these keys.
            is_measured: run as a long-lived server does, with Java's own choice of compilers.

        Raises:
            JudgeError: Java, a jar or the compiler is missing, or it does not come up.
        """
        jars = [*fetch_all(read_pins(SOURCES / "jars.txt")), *sorted(spark_jars().glob("*.jar"))]
        class_path = os.pathsep.join(map(str, (compiled([SOURCES], jars), *jars)))
        self._kerberos = kerberos
        asked = {} if kerberos is None else {**kerberos.server_settings, **kerberos.client_settings}
        settings = [f"{name}={value}" for name, value in {**asked, **(configuration or {})}.items()]
        command: list[str | Path] = [
            find_java(),
            *ADD_OPENS,
            *(("-Xmx1g",) if is_measured else (*SPEED_OPTIONS, "-Xmx512m")),
            "-cp",
            class_path,
            "judge.MiniHdfs",
        ]
        arguments = [str(work_directory / "data"), str(data_nodes), str(name_nodes), *settings]
        super().__init__(JudgeProcess("HDFS", [*command, *arguments], work_directory / "hdfs.log"))
        with self._stopped_on_failure():
            self._addresses = self._ask("addresses", timeout_seconds=START_TIMEOUT_SECONDS)

    @property
    def description(self) -> str:
        """Say which judge this is, for the summary of a test run."""
        security = "" if self._kerberos is None else ", Kerberos"
        return f"HDFS 3.5.0 ({len(self._addresses)} NameNode(s){security}, Maven Central)"

    @property
    def location(self) -> str:
        """The root for clients: ``hdfs://127.0.0.1:PORT``, or that of the name service."""
        if len(self._addresses) > 1:
            return f"hdfs://{NAME_SERVICE}"
        return f"hdfs://{self._addresses['namenode0']}"

    @property
    def settings(self) -> dict[str, str]:
        """Properties for a client."""
        found = {"fs.defaultFS": self.location, "dfs.replication": "1"}
        if self._kerberos is not None:
            found |= self._kerberos.client_settings
        if len(self._addresses) > 1:
            provider = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
            found |= {
                "dfs.nameservices": NAME_SERVICE,
                f"dfs.ha.namenodes.{NAME_SERVICE}": "nn0,nn1",
                f"dfs.client.failover.proxy.provider.{NAME_SERVICE}": provider,
            }
            for number in range(2):
                key = f"dfs.namenode.rpc-address.{NAME_SERVICE}.nn{number}"
                found[key] = self._addresses[f"namenode{number}"]
        return found

    def restart_namenode(self) -> None:
        """Stop the NameNode and start it on the same port."""
        self._ask("restart_namenode")

    def stop_datanode(self, index: int) -> None:
        """Stop a running DataNode, counted from 0; the NameNode is not informed."""
        self._ask("stop_datanode", index=index)

    def stop_namenode(self, index: int) -> None:
        """Stop a NameNode: all its connections break."""
        self._ask("stop_namenode", index=index)

    def start_namenode(self, index: int) -> None:
        """Start a NameNode again on its port: first in safe mode; one of two as a standby. Does not wait."""
        self._ask("start_namenode", index=index)

    def fail_over(self, to: int) -> None:
        """Make the other NameNode the active one; the first may be stopped."""
        self._ask("fail_over", to=to)

    def active(self) -> int:
        """Which of two NameNodes is active; -1 if none is."""
        return int(self._ask("active")["index"])

    def heal(self) -> None:
        """Start everything that was stopped, and wait until the cluster can be written."""
        self._ask("heal")

    def safe_mode(self, on: bool) -> None:
        """Refuse all changes, or accept them again."""
        self._ask("safe_mode", on=on)

    def set_quota(self, path: str, *, names: int = 2**62, space_bytes: int = 2**62) -> None:
        """Limit the names and bytes below a directory."""
        self._ask("quota", path=path, names=names, bytes=space_bytes)

    def snapshot(self, path: str, name: str) -> None:
        """Take a snapshot of a directory."""
        self._ask("snapshot", path=path, name=name)

    def delete_snapshot(self, path: str, name: str) -> None:
        """Delete a snapshot of a directory."""
        self._ask("delete_snapshot", path=path, name=name)

    def make_directory(
        self, path: str, *, mode: str = "755", user: str | None = None, group: str | None = None
    ) -> None:
        """Create a directory, or change it, with this mode and owner (whose group is of the same name)."""
        self._ask("mkdir", path=path)
        self._ask("chmod", path=path, mode=mode)
        if user is not None:
            self._ask("chown", path=path, user=user, group=group or user)

    def add_acl(self, path: str, spec: str) -> None:
        """Add entries in the form of ``hdfs dfs -setfacl``."""
        self._ask("acl", path=path, spec=spec)

    def write_token(
        self, file: Path, principal: str, keytab: Path, *, service: str | None = None, form: str = "PROTOBUF"
    ) -> None:
        """Write a new delegation token of that principal to a file.

        Args:
            file: in the format of HADOOP_TOKEN_FILE_LOCATION.
            principal: its owner and renewer.
            keytab: the principal's keys.
            service: the NameNode in the token; Hadoop's own name for None.
            form: ``PROTOBUF``, or ``WRITABLE``, which Hadoop 2 writes.
        """
        if service is None and len(self._addresses) > 1:
            service = f"ha-hdfs:{NAME_SERVICE}"
        request: dict[str, Any] = {"principal": principal, "keytab": str(keytab), "file": str(file)}
        if service is not None:
            request["service"] = service
        self._ask("token", format=form, renewer=principal, **request)

    def cancel_tokens(self, file: Path, principal: str, keytab: Path) -> None:
        """Cancel the tokens of a file."""
        self._ask("cancel_token", file=str(file), principal=principal, keytab=str(keytab))
