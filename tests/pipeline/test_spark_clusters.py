"""A standalone cluster of two workers, and Spark Connect; workers have no raftlog of their own: make spark-jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from raftlog.client import SyncClient
from tests.conftest import Broker
from tests.paths import ROOT
from tests.pipeline.conftest import Topic, needs_spark
from tests.pipeline.standalone import standalone

pytestmark = [pytest.mark.slow, *needs_spark]
RUN_SECONDS = 300


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has all packages but raftlog."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True, timeout=60)
    (packages,) = (tmp_path / "bare" / "lib").glob("python3*/site-packages")
    # A path of packages; what is installed there by reference, as raftlog is in a checkout, is not found through it.
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    python = tmp_path / "bare" / "bin" / "python"
    there = subprocess.run([python, "-c", "import pyarrow, raftlog"], capture_output=True, text=True, cwd=tmp_path)
    assert "No module named 'raftlog'" in there.stderr
    return python


def copied(master: str, broker: Broker, client: SyncClient, topic: Topic, folder: Path, python: Path) -> str:
    """What the driver said. Rows are in the target four times then: of a stream and a batch, under either protocol."""
    rows = [b"%03d" % at for at in range(60)]
    source, target = topic(rows, partitions=2), topic(partitions=2)
    command = [sys.executable, "-m", "tests.pipeline.far_driver", master, broker.bootstrap_servers, source, target]
    told = subprocess.run(
        [*command, str(folder / "state")],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert told.returncode == 0, told.stdout[-1000:] + told.stderr[-4000:]
    assert "rows in 60" in told.stdout
    ends = client.admin.offsets_at([(target, 0), (target, 1)], -1)
    found: list[bytes] = []
    with client.consumer(target, auto_offset_reset="earliest") as consumer:
        while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
            found += [record.value or b"" for record in consumer.poll(5000, timeout=1)]
    assert sorted(found) == sorted(rows * 4)
    return told.stdout


def test_a_standalone_cluster_gets_raftlog_from_its_driver(
    broker: Broker, client: SyncClient, topic: Topic, tmp_path: Path, bare_python: Path
) -> None:
    with standalone(tmp_path, bare_python) as master:
        assert "raftlog.zip" in copied(master, broker, client, topic, tmp_path, bare_python)


def test_spark_connect_gets_raftlog_from_its_client(
    broker: Broker, client: SyncClient, topic: Topic, tmp_path: Path, bare_python: Path
) -> None:
    pytest.importorskip("grpc")
    assert "raftlog.zip" in copied("connect", broker, client, topic, tmp_path, bare_python)
