"""What Spark asks Kubernetes for when docs/clusters.md is followed; there is no Kubernetes here to run it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.integration.clusters.test_clusters_doc import run
from tests.support.hadoop_files import write_site

pytestmark = [pytest.mark.slow, pytest.mark.long]

CREATED = 201


class Recorder(BaseHTTPRequestHandler):
    """Answers each request to make something as if it were made, and keeps it."""

    protocol_version = "HTTP/1.1"
    made: ClassVar[list[dict[str, Any]]] = []
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        thing = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.made.append(thing)
        self.paths.append(self.path)
        body = json.dumps({**thing, "metadata": {**thing["metadata"], "uid": str(len(self.made))}}).encode()
        self.send_response(CREATED)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PATCH(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of what takes requests as Kubernetes would."""
    monkeypatch.setattr(Recorder, "made", [])
    monkeypatch.setattr(Recorder, "paths", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_pod_of_a_driver(kubernetes: str, tmp_path: Path) -> None:
    """It runs the command by the image's Python, with Hadoop's files where this library looks for them."""
    environment = {"KUBERNETES": kubernetes, "IMAGE": "registry.example/spark:1", "NAMESPACE": "etl"}
    conf = write_site(tmp_path / "conf" / "hive-site.xml", {"hive.metastore.uris": "thrift://m:9083"}).parent
    run("kubernetes cluster", tmp_path, conf, **environment)
    pod = next(each for each in Recorder.made if each["kind"] == "Pod")
    assert "/api/v1/namespaces/etl/pods" in Recorder.paths, Recorder.paths
    (driver,) = pod["spec"]["containers"]
    assert driver["image"] == "registry.example/spark:1"
    main = "local:///opt/python/lib/python3.11/site-packages/mutation_api/cli/main.py"
    words = driver["args"][driver["args"].index(main) :]
    assert words[1:4] == ["merge", "--table", "sales.orders"]
    variables = {each["name"]: each.get("value") for each in driver["env"]}
    assert variables["PYSPARK_PYTHON"] == "/opt/python/bin/python"
    files = next(
        each
        for each in Recorder.made
        if each["kind"] == "ConfigMap" and "hive-site.xml" in each.get("data", {})
    )
    name = files["metadata"]["name"]
    volume = next(each for each in pod["spec"]["volumes"] if each.get("configMap", {}).get("name") == name)
    mount = next(each for each in driver["volumeMounts"] if each["name"] == volume["name"])
    assert variables["HADOOP_CONF_DIR"] == mount["mountPath"]
