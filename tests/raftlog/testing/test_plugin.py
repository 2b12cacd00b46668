"""The plugin as pytest sees it: its options and marks, workers, and what it costs who does not use it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.testing import Kafka
from tests.paths import ROOT

ALONE = ["-p", "no:cacheprovider", "-p", "no:raftlog", "-p", "raftlog.testing.pytest_plugin"]


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def run_tests(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run_files(folder, {"test_users.py": text}, *options)


def run_files(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return python("-m", "pytest", "-q", *ALONE, *options, folder=folder)


def test_the_plugin_is_announced_to_pytest() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\nraftlog = "raftlog.testing.pytest_plugin"' in text


def test_loading_the_plugin_loads_nothing_else() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import raftlog.testing.pytest_plugin; "
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    done = python("-c", program, folder=ROOT)
    assert done.stdout.split() == ["raftlog", "raftlog.testing", "raftlog.testing.pytest_plugin"]


WORKERS = """
import os
import pytest

@pytest.mark.parametrize("number", range(4))
def test_who_serves(kafka, kafka_topic, number):
    kafka.seed(kafka_topic, ["x"])
    assert len(kafka.records(kafka_topic, 1)) == 1
    with open("served", "a") as file:
        file.write(f"{kafka.bootstrap_servers} {os.environ['PYTEST_XDIST_WORKER']}\\n")
"""


@pytest.mark.long
def test_workers_share_a_kafka_when_told_so(tmp_path: Path) -> None:
    done = run_tests(tmp_path, WORKERS, "-p", "xdist", "-n", "2", "--dist", "load", "--kafka-shared")
    assert "4 passed" in done.stdout, done.stdout
    lines = [line.split() for line in (tmp_path / "served").read_text().splitlines()]
    assert len({worker for _, worker in lines}) == 2 and len({servers for servers, _ in lines}) == 1


MARKED = """
import pytest

@pytest.fixture(scope="session")
def kafka_settings():
    return {"settings": {"num.partitions": "2"}}

def test_settings(kafka, kafka_bootstrap_server):
    kafka.seed("used", ["x"])
    assert len(kafka.admin.topic("used").partitions) == 2

@pytest.mark.kafka(brokers=3)
def test_failover(kafka, kafka_bootstrap_servers, kafka_topic):
    assert kafka_bootstrap_servers.count(",") == 2
    assert len(kafka.admin.topic(kafka_topic).partitions[0].replica_nodes) == 3
"""


@pytest.mark.long
def test_settings_and_marks_say_what_a_test_gets(tmp_path: Path) -> None:
    done = run_tests(tmp_path, MARKED)
    assert "2 passed" in done.stdout, done.stdout
    assert "PytestUnknownMark" not in done.stdout


@pytest.mark.long
def test_a_mark_that_is_misspelt_is_told(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "import pytest\n@pytest.mark.kafka(borkers=3)\ndef test_it(kafka): pass\n")
    assert "pytest.mark.kafka takes kafka(brokers=1" in done.stdout
    assert "pluggy" not in done.stdout and len(done.stdout.splitlines()) < 10


KINDS = """
import pytest

def test_a(kafka): pass

@pytest.mark.kafka(brokers=3)
def test_b(kafka): pass

def test_c(kafka): pass

@pytest.mark.kafka(partitions=2)
def test_d(kafka): pass

@pytest.mark.kafka(settings={"num.partitions": "2"})
def test_e(kafka): pass
"""


def test_marks_of_module_class_and_test_are_taken_together(tmp_path: Path) -> None:
    text = """
import pytest

pytestmark = pytest.mark.kafka(brokers=3, partitions=1)

@pytest.mark.kafka(partitions=2)
def test_both(kafka_topic): pass

@pytest.mark.kafka(brokers=1)
def test_the_nearest(kafka_topic): pass
"""
    done = run_tests(tmp_path, text, "--collect-only")
    assert "test_both[brokers=3]" in done.stdout and "test_the_nearest[brokers=1]" in done.stdout, done.stdout


def test_tests_of_one_kind_run_together(tmp_path: Path) -> None:
    files = {"test_one.py": KINDS, "test_two.py": KINDS}
    done = run_files(tmp_path, files, "--collect-only")
    order = "".join(re.findall(r"::test_(.)", done.stdout))
    assert order == "acdacd" + "bb" + "ee"


@pytest.mark.long
def test_a_kafka_that_runs_already_is_used(tmp_path: Path, kafka: Kafka) -> None:
    text = f"""
import pytest

def test_where(kafka, kafka_topic):
    assert kafka.bootstrap_servers == "{kafka.bootstrap_servers}"
    kafka.seed(kafka_topic, ["x"])

@pytest.mark.kafka(brokers=3)
def test_brokers_of_its_own(kafka):
    pass
"""
    done = run_tests(tmp_path, text, "--kafka-bootstrap", kafka.bootstrap_servers)
    assert "1 passed, 1 skipped" in done.stdout, done.stdout


def test_a_kafka_that_a_test_has_started_itself_tells_its_log_when_the_test_fails(tmp_path: Path) -> None:
    text = """
import pytest

from raftlog.testing import Kafka

@pytest.fixture
def own():
    with Kafka() as kafka:
        yield kafka

def test_in_a_block():
    with Kafka(settings={"num.partitions": "2"}) as kafka:
        kafka.seed("a-topic", ["x"])
        assert len(kafka.admin.topic("a-topic").partitions) == 3

def test_of_a_fixture(own):
    own.seed("another-topic", ["x"])
    assert False

def test_that_passes():
    with Kafka() as kafka:
        kafka.seed("third-topic", ["x"])
"""
    done = run_tests(tmp_path, text)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    first, second = done.stdout.split("test_of_a_fixture", 1)
    for told, topic, other in ((first, "a-topic", "another-topic"), (second, "another-topic", "a-topic")):
        assert f"on first use: {topic} " in told and f"on first use: {other} " not in told
        assert "the last requests of clients to broker-1" in told
    assert "on first use: third-topic " not in done.stdout


FAULTS = """
def test_that_fails(kafka, kafka_topic, kafka_faults):
    refused = kafka_faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=kafka_topic)
    kafka.seed(kafka_topic, ["x"])
    assert refused.fired == 2

def test_whose_fault_does_nothing(kafka_faults):
    kafka_faults.disconnect("EndTxn")

def test_that_kills(kafka, kafka_topic, kafka_faults):
    kafka_faults.broker(1).kill()

def test_after_that(kafka, kafka_topic):
    kafka.seed(kafka_topic, ["x"])

def test_whose_disk_fails(kafka, kafka_topics, kafka_faults):
    (topic,) = kafka_topics(config={"flush.messages": "1"})
    kafka_faults.broker(1).disk.fail_sync()
    try:
        kafka.seed(topic, ["x"], timeout=0.5)
    except Exception:
        pass

def test_after_that_one(kafka, kafka_topic):
    kafka.seed(kafka_topic, ["x"])
"""


@pytest.mark.long
def test_faults_of_fixtures_end_with_their_test_also_when_there_is_none(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.fixture
def at_the_beginning(kafka_faults):
    kafka_faults.error("Produce", "INVALID_RECORD").always()

@pytest.fixture
def that_fails(at_the_beginning):
    raise RuntimeError("no such thing")

@pytest.fixture
def at_the_end(kafka_faults):
    yield
    kafka_faults.error("Produce", "INVALID_RECORD").always()

def test_that_never_begins(that_fails): pass

def test_after_that(kafka, kafka_topic, at_the_end):
    kafka.seed(kafka_topic, ["x"])

def test_after_that_one(kafka, kafka_topic):
    kafka.seed(kafka_topic, ["x"])
"""
    done = run_tests(tmp_path, text)
    assert "2 passed, 1 error" in done.stdout, done.stdout


@pytest.mark.long
def test_a_broker_that_does_not_come_back_is_told_and_the_tests_own_failure_first(tmp_path: Path) -> None:
    text = """
import shutil

def lose(kafka_faults):
    broker = kafka_faults.broker(1)
    broker.kill()
    shutil.rmtree(broker.process.data_dir)
    broker.process.data_dir.write_text("in the way")

def test_that_passes(kafka_faults):
    lose(kafka_faults)

def test_that_fails(kafka_cluster):
    lose(kafka_cluster(brokers=1).faults)
    assert 1 == 2
"""
    done = run_tests(tmp_path, text)
    assert "2 failed" in done.stdout and "INTERNALERROR" not in done.stdout, done.stdout
    assert "BrokerDied" in done.stdout and "assert 1 == 2" in done.stdout, done.stdout
    assert "and its faults could not be healed: broker 1 ended" in done.stdout, done.stdout


@pytest.mark.long
def test_a_failure_tells_logs_faults_and_how_to_run_it_again(tmp_path: Path) -> None:
    done = run_tests(tmp_path, FAULTS)
    assert "2 failed, 4 passed" in done.stdout, done.stdout
    assert "broker-1 logged" in done.stdout and "topics created: test-that-fails-" in done.stdout
    asked = done.stdout.partition("the last requests of clients to broker-1")[2]
    assert re.search(r"Z Produce v\d+ of raftlog-testing \(127\.0\.0\.1:\d+\): test-that-fails-", asked), asked
    assert "s: error Produce NOT_LEADER_OR_FOLLOWER topic=test-that-fails-" in done.stdout
    assert "python -m pytest test_users.py::test_that_fails" in done.stdout and "RAFTLOG_FAULT_SEED=" in done.stdout
    assert "these faults had no effect:\n  disconnect EndTxn once (fired=0" in done.stdout


BLOCKS = """
def test_that_fails(kafka_cluster):
    with kafka_cluster(brokers=1) as own:
        own.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
        own.seed("orders", ["x"])
        with own.faults.schedule(seed=7, seconds=0.5, kinds=["clock"]):
            pass
    assert False

def test_whose_fault_does_nothing(kafka_cluster):
    with kafka_cluster(brokers=1) as own:
        own.faults.disconnect("EndTxn")

def test_that_stops_it_itself(kafka_cluster):
    own = kafka_cluster(brokers=1)
    own.faults.disconnect("InitProducerId")
    own.stop()
"""


ANOTHERS = """
import os, signal, pytest
from raftlog.testing import Kafka

@pytest.fixture(scope="module")
def kafka():
    with Kafka() as own:
        yield own

def test_whose_fault_does_nothing(kafka_faults):
    kafka_faults.disconnect("EndTxn")

def test_after_that(kafka, kafka_topic, kafka_faults):
    kafka.seed(kafka_topic, ["x"])
    kafka_faults.broker(1).kill()

def test_whose_broker_has_died(kafka, kafka_topic, kafka_faults):
    os.kill(kafka.running.broker(1).pid, signal.SIGKILL)
    while kafka.running.broker(1).running: pass
    assert False
"""


@pytest.mark.long
def test_faults_in_a_kafka_that_has_taken_the_place_of_the_sessions_are_watched_as_well(tmp_path: Path) -> None:
    done = run_tests(tmp_path, ANOTHERS)
    assert "2 failed, 1 passed" in done.stdout and "ERROR" not in done.stdout, done.stdout
    assert "these faults had no effect:\n  disconnect EndTxn once (fired=0" in done.stdout
    assert "topics created: test-whose-broker-has-died-" in done.stdout, "what its brokers logged"
    assert re.search(r"- broker-1 is down -+\nit was killed by SIGKILL\n", done.stdout), done.stdout


@pytest.mark.long
def test_a_failure_tells_the_same_of_a_cluster_whose_block_was_left(tmp_path: Path) -> None:
    done = run_tests(tmp_path, BLOCKS)
    assert "3 failed" in done.stdout, done.stdout
    assert "broker-1 logged" in done.stdout and "topics created on first use: orders" in done.stdout
    asked = done.stdout.partition("the last requests of clients to broker-1")[2]
    assert re.search(r"Z Produce v\d+ of raftlog-testing \(127\.0\.0\.1:\d+\): orders", asked), asked
    assert "s: error Produce NOT_LEADER_OR_FOLLOWER once (fired=1)" in done.stdout
    assert "schedule of seed 7" in done.stdout and re.search(r"^\d\.\d{3} clock \S+ for=", done.stdout, re.M)
    assert "python -m pytest test_users.py::test_that_fails" in done.stdout
    assert re.search(r"these faults had no effect:\nE +disconnect EndTxn once \(fired=0", done.stdout), done.stdout
    assert "these faults had no effect:\n  disconnect InitProducerId once (fired=0" in done.stdout
