"""What is released, installed where nothing else is; also with the oldest dependencies."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "tests" / "golden" / "acid" / "base_and_deltas" / "data"
SCHEMA, IDS = "id bigint, msg string", [1, 3, 4, 5]

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel and the source archive by their suffixes."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, folder.iterdir()))
    found = {path.suffix: path for path in folder.iterdir()}
    assert sorted(found) == [".gz", ".whl"]
    return found


@pytest.mark.parametrize(
    ("suffix", "is_oldest"),
    [(".whl", False), (".whl", True), (".gz", False)],
    ids=["wheel", "oldest", "sdist"],
)
def test_it_is_installed_into_an_empty_environment(
    archives: dict[str, Path], tmp_path: Path, suffix: str, is_oldest: bool
) -> None:
    """The command reads a table of real Hive there; types and stubs are there, too."""
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    bin_folder = tmp_path / "venv" / "bin"
    wanted = [str(archives[suffix]), *(oldest() if is_oldest else ())]
    run(str(bin_folder / "python"), "-m", "pip", "install", "--quiet", *wanted)
    version = run(str(bin_folder / "hive-mutate"), "--version")
    assert re.fullmatch(r"hive-mutate \d+\.\d+\.\d+\S*\n", version)
    rows = run(
        str(bin_folder / "hive-mutate"), "read", "--location", str(TABLE), "--schema", SCHEMA, "--json"
    )
    assert [json.loads(row)["row"]["id"] for row in rows.splitlines()] == IDS
    where = run(str(bin_folder / "python"), "-c", "import mutation_api; print(mutation_api.__path__[0])")
    assert (Path(where.strip()) / "py.typed").exists()
    assert (Path(where.strip()) / "__init__.pyi").exists()


def test_the_description_leads_somewhere(archives: dict[str, Path]) -> None:
    """On the page of the package index there are no files of the repository beside the README."""
    with zipfile.ZipFile(archives[".whl"]) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        text = wheel.read(name).decode()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) > 10
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []


def oldest() -> list[str]:
    """The lowest versions that the requirements allow."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser["options"]["install_requires"].split("\n")
    return [f"{name}=={version}.*" for name, version in re.findall(r"(\w+) >=([\d.]+)", "\n".join(lines))]


def run(*command: str) -> str:
    """What a command prints; it must succeed."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", env=environment, timeout=500, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout
