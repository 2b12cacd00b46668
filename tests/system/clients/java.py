"""Kafka's own command-line tools, which are unmodified Java clients: finding them and running them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import IO

import pytest

from tests.paths import KAFKA

DEADLINE_SECONDS = 120.0
# Each tool lives for a second: compiling well is not worth the time.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

marks = [
    pytest.mark.java,
    pytest.mark.skipif(
        not KAFKA.exists() or shutil.which("java") is None,
        reason="needs Java 17 and Kafka's jars in ../shared/peers",
    ),
]


class Tool:
    """A tool that runs beside the test. What it prints goes to files: a full pipe would stop it."""

    def __init__(self, name: str, *arguments: str) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(KAFKA), "tool", name, *arguments],
            env={**os.environ, "JDK_JAVA_OPTIONS": QUICK_START},
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
