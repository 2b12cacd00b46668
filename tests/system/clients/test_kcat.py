"""kcat, the command line of librdkafka that operators have at hand."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.conftest import Broker

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
DEADLINE_SECONDS = 60.0

pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (apt install kcat)")


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    """What kcat prints; it must succeed."""
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", broker.bootstrap_servers, *arguments],
        input=stdin, capture_output=True, text=True, timeout=DEADLINE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def test_metadata_names_the_broker_and_the_topics(broker: Broker, three_partitions: str) -> None:
    found = json.loads(kcat(broker, "-L", "-J"))
    assert [node["name"] for node in found["brokers"]] == [broker.bootstrap_servers]
    (topic,) = [topic for topic in found["topics"] if topic["topic"] == three_partitions]
    assert [partition["leader"] for partition in topic["partitions"]] == [1, 1, 1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(broker: Broker, topic: str, codec: str) -> None:
    lines = [f"k{number}:value {number}" for number in range(100)]
    arguments = ["-P", "-t", topic, "-K", ":", "-z", codec, "-H", "source=kcat", "-X", "acks=all"]
    kcat(broker, *arguments, stdin="\n".join(lines))
    read = kcat(broker, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%o %k:%s %h\\n")
    assert read.splitlines() == [f"{offset} {line} source=kcat" for offset, line in enumerate(lines)]


def test_nulls_are_nulls_and_the_tail_is_the_tail(broker: Broker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-K", ":", "-Z", stdin="a:\nb:x\n")
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-f", "%k %S\\n") == "a -1\nb 1\n"
    assert kcat(broker, "-C", "-t", topic, "-e", "-q", "-o", "-1", "-f", "%s\\n") == "x\n"


def test_offsets_are_asked_by_time(broker: Broker, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, stdin="a\nb\n")
    assert f"{topic} [0] offset 2" in kcat(broker, "-Q", "-t", f"{topic}:0:-1")
    assert f"{topic} [0] offset 0" in kcat(broker, "-Q", "-t", f"{topic}:0:1")


def test_a_group_reads_and_goes_on(broker: Broker, topic: str) -> None:
    # With -e alone kcat waits for the end of all partitions that the group gave it.
    kcat(broker, "-P", "-t", topic, stdin="a\nb\nc\n")
    arguments = ["-G", topic, "-q", "-e", "-X", "auto.offset.reset=earliest", topic]
    assert kcat(broker, *arguments).split() == ["a", "b", "c"]
    kcat(broker, "-P", "-t", topic, stdin="d\n")
    assert kcat(broker, *arguments).split() == ["d"]
