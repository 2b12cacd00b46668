"""How tests run Java: Kafka's own command-line tools, which are unmodified clients, and what else needs a JVM."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest

from raftlog.testing import cluster
from tests.paths import KAFKA, ROOT

DEADLINE_SECONDS = 120.0
# What tests start lives for seconds: compiling well is not worth the time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Setting up log4j with its file costs as much as the rest of a tool.
PLAIN_LOGGING = "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory"
# A JVM that cannot use an archive says so, by default among what the tool prints.
WARNINGS = "-Xlog:disable -Xlog:all=warning:stderr"
ARCHIVE = ROOT / ".make" / "kafka-tools-plain-logging.jsa"
"""The classes of Kafka's tools as the JVM has them once they are loaded, which is half of what a tool does then."""

Test = TypeVar("Test", bound=Callable[..., Any])

marks = [
    pytest.mark.java,
    pytest.mark.skipif(
        not KAFKA.exists() or shutil.which("java") is None,
        reason="needs Java 17 and Kafka's jars in ../shared/peers",
    ),
]
"""Marks of a test that runs Kafka or one of its tools."""


def needed(test: Test) -> Test:
    """The marks for one test."""
    for mark in marks:
        test = mark(test)
    return test


@cache
def archive() -> Path:
    """The archive, made when there is none. A JVM to which it does not belong goes without it."""
    if not ARCHIVE.exists():
        ARCHIVE.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as directory, cluster() as brokers:
            made = Path(directory) / ARCHIVE.name
            reading = ("--bootstrap-server", brokers.bootstrap_servers, "--topic", "t", "--timeout-ms", "500")
            Tool("console-consumer", *reading, jvm=f"-XX:ArchiveClassesAtExit={made}").finish()
            made.replace(ARCHIVE)
    return ARCHIVE


class Tool:
    """A tool that runs beside the test. What it prints goes to files: a full pipe would stop it."""

    def __init__(self, name: str, *arguments: str, jvm: str = "") -> None:
        """`jvm`: an option of the machine, in place of the archive."""
        options = jvm or f"-XX:SharedArchiveFile={archive()}"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(KAFKA), "tool", name, *arguments],
            env={**os.environ, "JDK_JAVA_OPTIONS": f"{QUICK_START} {WARNINGS} {PLAIN_LOGGING} {options}"},
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._errors,
        )

    def finish(self, stdin: str = "") -> str:
        """What the tool printed; it must succeed in time."""
        try:
            self._process.communicate(stdin.encode(), DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        output, errors = (self._read(file) for file in (self._output, self._errors))
        ended = f"{self._process.args} ended with {self._process.returncode}\n{output[-2000:]}\n{errors[-4000:]}"
        assert self._process.returncode == 0, ended
        return output

    @staticmethod
    def _read(file: IO[bytes]) -> str:
        file.seek(0)
        text = file.read().decode(errors="replace")
        file.close()
        return text


def run(name: str, *arguments: str, stdin: str = "") -> str:
    """Run a tool to its end."""
    return Tool(name, *arguments).finish(stdin)
