"""The packed Python runs without anything else of this machine's Python."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_FAILED
from mutation_api.errors import ConfigurationError
from mutation_api.spark.python_archive import PROGRAM, pack_python

LOOK = """
import json, sys
import mutation_api, numpy, pyarrow, pyorc, hdfs_native, ssl, zoneinfo
from mutation_api.orc.write.event_writer import *
print(json.dumps([sys.executable, mutation_api.__path__[0], sys.path[1:], "pyspark" in sys.modules]))
"""


@pytest.mark.slow
@pytest.mark.long
def test_it_runs_where_nothing_else_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unpacked under another name, started through a link, with an empty environment."""
    archive = tmp_path / "p.tar.gz"
    assert main(["pack", str(archive), "--extras", "hdfs"]) == 0
    said = capsys.readouterr().out
    assert "hive-mutation-api" in said
    assert "pyspark" not in said
    place = tmp_path / "else where"
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="tar")
    link = tmp_path / "link"
    link.symlink_to(place)
    done = subprocess.run(
        [str(link / PROGRAM), "-c", LOOK], capture_output=True, text=True, env={}, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr
    executable, library, path, has_pyspark = json.loads(done.stdout)
    assert Path(executable).is_relative_to(place)
    assert Path(library).is_relative_to(place)
    assert all(Path(each).is_relative_to(place) for each in path), path
    assert not has_pyspark
    assert not [each for each in tmp_path.iterdir() if each.name.endswith(".partial")]


def test_names_that_spark_does_not_unpack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused at once."""
    assert main(["pack", str(tmp_path / "p.zipped")]) == EXIT_FAILED
    assert "must end in .tar.gz" in capsys.readouterr().err


def test_a_package_that_is_not_here(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(ConfigurationError, match="pip install no-such-thing"):
        pack_python(tmp_path / "p.tar.gz", packages=["no_such-thing"])
    assert list(tmp_path.iterdir()) == []
