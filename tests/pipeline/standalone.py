"""A standalone cluster of Spark: a master and two workers, gone when the test is over."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until


@contextmanager
def _started(log: Path, command: Sequence[str], env: Mapping[str, str]) -> Iterator[None]:
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            env={**os.environ, **env},
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def standalone(folder: Path, python: Path, **more: str) -> Iterator[str]:
    """A master and two workers of one core each, with `more` in their environment; where they are reached."""
    import pyspark

    env = {"PYSPARK_PYTHON": str(python), **more}
    home = Path(pyspark.__file__).parent
    run = (str(home / "bin" / "spark-class"),)
    package, log = "org.apache.spark.deploy", folder / "master.log"
    at = ("--host", "127.0.0.1", "--webui-port", "0")
    with _started(log, (*run, f"{package}.master.Master", *at, "--port", "0"), env):
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        wait_until(lambda: pattern.search(log.read_text()), 120)
        found = pattern.search(log.read_text())
        assert found is not None
        size = ("--cores", "1", "--memory", "700m")
        worker = (*run, f"{package}.worker.Worker", *at, *size, found[1])
        logs = [folder / "worker-1.log", folder / "worker-2.log"]
        with _started(logs[0], (*worker, "-d", str(folder / "w1")), env):
            with _started(logs[1], (*worker, "-d", str(folder / "w2")), env):
                wait_until(lambda: all("Successfully registered" in each.read_text() for each in logs), 120)
                yield found[1]
