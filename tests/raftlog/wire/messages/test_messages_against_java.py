"""Apache Kafka's own message classes read what we write, and write it again byte for byte."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from raftlog.wire.codec import encode
from tests.paths import KAFKA_JARS
from tests.raftlog.wire.message_values import API_MESSAGES, samples, versions_of

JAVA_ORACLE = Path(__file__).with_name("MessageOracle.java")
SAMPLES = 6


@pytest.mark.java
def test_kafkas_own_classes_understand_every_message_and_version(tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None or not KAFKA_JARS.is_dir():
        pytest.skip("needs Java 17 and the jars of Kafka's client")
    lines = [
        f"{cls.__name__} {version} {encode(message, version).hex()}"
        for cls, version in versions_of(*API_MESSAGES)
        for message in [cls(), *samples(cls, version, SAMPLES)]
    ]
    (tmp_path / "ours").write_text("\n".join(lines) + "\n")
    finished = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_JARS}/*", str(JAVA_ORACLE), "ours", "theirs"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    theirs = (tmp_path / "theirs").read_text().splitlines()
    different = [
        (line, their_hex) for line, their_hex in zip(lines, theirs, strict=True) if line.rsplit(" ", 1)[1] != their_hex
    ]
    assert not different
