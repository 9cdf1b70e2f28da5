"""A real Trino beside a real Hive: what its Hive connector reads and writes in the tables of a metastore.

Its jars come from Maven Central, its Java from a Python package. One JVM is coordinator and worker; each
metastore that a test asks for becomes a catalog of it.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import urllib.request
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from judges.errors import JudgeError, TrinoError
from judges.hive.judge import CODE_CACHE, DEFAULT_ZONE, LOG_OPTIONS, SPEED_OPTIONS
from judges.jars import fetch_all, read_pins
from judges.java import compiled, java_25
from judges.process import START_TIMEOUT_SECONDS, JudgeProcess, ProcessJudge

SOURCES = Path(__file__).parent
JARS = read_pins(SOURCES / "jars.txt")
MAIN_CLASS = "judge.TrinoJudge"

ANSWER_TIMEOUT_SECONDS = 120.0

_JVM = (
    *SPEED_OPTIONS,
    *LOG_OPTIONS,
    CODE_CACHE,
    "-Xmx1g",
    f"-Duser.timezone={DEFAULT_ZONE}",
    "-Djdk.attach.allowAttachSelf=true",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_SERVER = {"query.max-memory-per-node": "400MB", "memory.heap-headroom-per-node": "200MB"}
_CATALOG = {
    "hive.metastore-cache-ttl": "0s",
    "hive.timestamp-precision": "NANOSECONDS",
    "hive.max-partitions-per-writers": "50",
    "hive.non-managed-table-writes-enabled": "true",
}
_HEADERS = {
    "X-Trino-User": "judge",
    "X-Trino-Time-Zone": DEFAULT_ZONE,
    "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",
}


class Trino(ProcessJudge):
    """One server on a free port of this machine."""

    version = next(jar.version for jar in JARS if jar.name == "trino-main")
    request_seconds = START_TIMEOUT_SECONDS

    def __init__(self, work_directory: Path) -> None:
        """Start the server.

        Args:
            work_directory: folder for its log and temporary files.

        Raises:
            JudgeError: a jar, Java or the compiler is missing, or the server does not come up; the message
                shows the end of its log.
        """
        folder = work_directory.resolve()
        jars = fetch_all(JARS)
        class_path = os.pathsep.join(map(str, [compiled([SOURCES], jars), *jars]))
        options = [*_JVM, f"-Djava.io.tmpdir={folder}", "-cp", class_path]
        settings = [f"{name}={value}" for name, value in _SERVER.items()]
        command: list[str | Path] = [java_25(), *options, MAIN_CLASS, *settings]
        super().__init__(JudgeProcess("Trino", command, folder / "trino.log"))
        self._catalogs: dict[str, TrinoCatalog] = {}
        with self._stopped_on_failure():
            self.url = str(self._ask("serve")["uri"])

    @property
    def description(self) -> str:
        """Name and version, for the summary of a test run."""
        return f"Trino {self.version}"

    def catalog(self, metastore_uri: str) -> TrinoCatalog:
        """The tables of a metastore on the local disk; its catalog is made on the first call."""
        if metastore_uri not in self._catalogs:
            name = f"hive{len(self._catalogs)}"
            self._ask("catalog", name=name, properties={**_CATALOG, "hive.metastore.uri": metastore_uri})
            self._catalogs[metastore_uri] = TrinoCatalog(self.url, name)
        return self._catalogs[metastore_uri]


class TrinoCatalog:
    """The tables of one metastore, as Trino reads and writes them."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self.name = name

    def sql(self, text: str, *, settings: Mapping[str, str] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement; tables are named ``database.table``.

        Args:
            text: the statement.
            settings: session properties of the catalog, for this statement alone.

        Returns:
            For a query its rows, else the count of rows if Trino gives one. Values are Python's, as pyarrow
            gives them for the Hive type: maps as lists of pairs, structs as dictionaries. A timestamp with
            digits below microseconds is a text with nine digits of a second.

        Raises:
            TrinoError: Trino refused the statement, or it failed; the message starts with the error's name.
            JudgeError: the server does not answer.
        """
        given = ",".join(f"{self.name}.{name}={value}" for name, value in (settings or {}).items())
        headers = {**_HEADERS, "X-Trino-Catalog": self.name, "X-Trino-Session": given}
        answer = _answer(urllib.request.Request(f"{self._url}/v1/statement", text.encode(), headers))
        rows = [*_rows(answer)]
        while "nextUri" in answer:
            answer = _answer(urllib.request.Request(answer["nextUri"], headers=_HEADERS))
            rows += _rows(answer)
        return rows


def _answer(request: urllib.request.Request) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
    except (OSError, ValueError) as error:
        raise JudgeError(f"Trino does not answer {request.full_url}: {error}") from error
    if "error" in answer:
        raise TrinoError(_failure(answer["error"]))
    return answer


def _failure(error: Mapping[str, Any]) -> str:
    """The error's name, its message, and those of its causes."""
    messages, cause = (
        [f"{error['errorName']}: {error.get('message')}"],
        error.get("failureInfo", {}).get("cause"),
    )
    while cause:
        messages.append(f"{cause.get('type')}: {cause.get('message')}")
        cause = cause.get("cause")
    return "; caused by ".join(messages)


def _rows(answer: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    types = [column["typeSignature"] for column in answer.get("columns", ())]
    return [tuple(map(_value, row, types)) for row in answer.get("data", ())]


def _value(value: Any, signature: Mapping[str, Any]) -> Any:
    """A value of Trino's protocol as Python's; ``signature`` is the description of its type there."""
    if value is None:
        return None
    children = [each["value"] for each in signature["arguments"]]
    match signature["rawType"]:
        case "real" | "double":
            return float(value)
        case "decimal":
            return Decimal(value)
        case "date":
            return datetime.date.fromisoformat(value)
        case "timestamp":
            return datetime.datetime.fromisoformat(value[:-3]) if value.endswith("000") else value
        case "varbinary":
            return base64.b64decode(value)
        case "array":
            return [_value(each, children[0]) for each in value]
        case "map":
            return [(_key(each, children[0]), _value(item, children[1])) for each, item in value.items()]
        case "row":
            names = [each["fieldName"]["name"] for each in children]
            kinds = [each["typeSignature"] for each in children]
            return dict(zip(names, map(_value, value, kinds), strict=True))
    return value


def _key(text: str, signature: Mapping[str, Any]) -> Any:
    """A key of a map, which the protocol gives as text."""
    match signature["rawType"]:
        case "tinyint" | "smallint" | "integer" | "bigint":
            return int(text)
        case "boolean":
            return text == "true"
    return _value(text, signature)
