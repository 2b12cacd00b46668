"""The calls that Kafka Streams (exactly_once_v2) makes, one by one: there is no jar of it among the peers.

What Kafka 4.3.1 answered is in `platforms/streams_calls.txt`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import java
from tests.paths import KAFKA_JARS
from tests.system.clients.groups import broker_of_our_own

PLATFORMS = Path(__file__).with_name("platforms")
DEADLINE_SECONDS = 120.0

pytestmark = [*java.marks, pytest.mark.slow, pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")]


def test_what_streams_asks_is_answered_as_by_kafka(tmp_path: Path) -> None:
    path = f"{tmp_path}:{KAFKA_JARS}/*"
    source = str(PLATFORMS / "StreamsCalls.java")
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(tmp_path), source], check=True)
    one = dict.fromkeys(("offsets_topic_num_partitions", "transaction_state_log_num_partitions"), "1")
    with broker_of_our_own(tmp_path, **one) as broker:
        command = ["java", *java.QUICK_START.split(), "-cp", path, "StreamsCalls", broker.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if " ERROR " not in line]
    assert told == (PLATFORMS / "streams_calls.txt").read_text().splitlines()
