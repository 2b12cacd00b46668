"""The Python of Spark's workers imports PySpark from folders, and from an archive only where there is nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from raftlog.pipeline.spark_python import NAME, command, unpacked


def spark_in(home: Path, *modules: str) -> list[str]:
    """A Spark's archives, with modules unpacked beside them."""
    for module in modules:
        (home / module).parent.mkdir(parents=True, exist_ok=True)
        (home / module).touch()
    return [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-0.10-src.zip"]


def test_archives_of_an_installed_pyspark_are_left_out(tmp_path: Path) -> None:
    archives = spark_in(tmp_path / "pyspark", "__init__.py")
    mine = f"{tmp_path}/pyspark/python/lib/mine.zip"
    assert unpacked([*archives, mine, "/opt/mine"], ["/usr/lib", str(tmp_path)]) == [mine, "/opt/mine"]


def test_archives_of_a_pyspark_of_another_python_stay(tmp_path: Path) -> None:
    archives = spark_in(tmp_path / "pyspark", "__init__.py")
    assert unpacked(archives, [str(tmp_path / "other")]) == archives


def test_a_spark_that_was_unpacked_is_imported_from_its_folder(tmp_path: Path) -> None:
    pyspark, py4j = spark_in(tmp_path, "python/pyspark/__init__.py")
    assert unpacked([pyspark, py4j], []) == [str(tmp_path / "python"), py4j]


def test_other_entries_stay_in_their_order() -> None:
    entries = ["", "/tmp/raftlog.zip", "/opt/spark/python/lib/pyspark.zip", "/opt/python/lib/mine"]
    assert unpacked(entries, ["/usr/lib"]) == entries


def test_the_command_runs_this_python_without_the_archive() -> None:
    pyspark = pytest.importorskip("pyspark")
    assert Path(command()).name == NAME, "raftlog is not installed: pip install --editable ."
    folder = Path(pyspark.__file__).parent
    (archive,) = (folder / "python" / "lib").glob("pyspark.zip")
    path = os.pathsep.join([str(archive), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = "import pyspark, sys; print(pyspark.__file__, *sys.argv[1:])"
    run = [command(), "-c", code, "an argument"]
    told = subprocess.run(run, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)
    assert told.stdout.split(maxsplit=1) == [str(folder / "__init__.py"), "an argument\n"], told.stderr
