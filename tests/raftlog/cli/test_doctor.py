"""`raftlog doctor`: what it finds, and what it says to do."""

from __future__ import annotations

import argparse
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.cli.connected import worded
from raftlog.cli.doctor import (
    BACKLOG_MIN,
    Patient,
    contradictions,
    of_addresses,
    of_bootstrap,
    of_clocks,
    of_disks,
    of_settings,
    of_this_machine,
)
from raftlog.cli.reach import Ailing, DiskLook, Look, look_at, why_fenced
from raftlog.client.cluster import Quorum
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import BrokerUnreachable
from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from raftlog.wire.messages.metadata import MetadataResponse
from tests.raftlog.cli.conftest import Run

GB = 1 << 30
AHEAD = {1: 0.5, 2: 3600.0, 3: -60.0, 4: None}
"""Seconds by which clocks of brokers are ahead; one broker did not say."""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that somebody has, and where nobody answers."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def patient(looks: dict[int, Look], settings: dict[int, dict[str, str]] | None = None, *, at: str) -> Patient:
    brokers = [
        DescribeClusterBroker(broker_id=broker, host=look.address.host, port=look.address.port)
        for broker, look in looks.items()
    ]
    cluster = DescribeClusterResponse(cluster_id="c", brokers=brokers)
    bootstrap = [Look(Address(at, 9092), resolved=[at], cluster_id="c")]
    none: frozenset[TopicPartition] = frozenset()
    ailing, quorum = Ailing(none, none, none), Quorum(1, 1, 1, ())
    return Patient(bootstrap, cluster, quorum, MetadataResponse(), looks, settings or {}, ailing)


def test_a_healthy_broker_has_no_errors(on_broker: Run) -> None:
    found = on_broker("doctor", "--json")
    assert found.code == 0, found.out
    by_subject = {finding["where"]: finding["level"] for finding in found.json}
    assert by_subject["addresses"] == by_subject["disks"] == by_subject["clocks"] == "ok"
    assert on_broker("doctor").out.splitlines()[-1].startswith("0 errors, ")


def test_nobody_at_the_address_is_an_error_with_advice(run: Run, silent_port: int) -> None:
    found = run("doctor", "-b", f"127.0.0.1:{silent_port}")
    assert found.code == 1
    assert "connection refused" in found.out and "→ start a broker there" in found.out
    assert run("doctor", "-b", "nonsense:x").code == 2


def test_a_name_that_is_none_and_a_port_where_nobody_answers_are_told_apart(silent_port: int) -> None:
    unnamed, refused = look_at([Address("a..b", 9092), Address("127.0.0.1", silent_port)], 2.0)
    assert unnamed.problem is not None and "does not resolve" in unnamed.problem
    assert refused.problem is not None and "connection refused" in refused.problem


def test_a_broker_that_advertises_this_machine_to_others_is_an_error() -> None:
    looks = {1: Look(Address("localhost", 9092), resolved=["127.0.0.1", "::1"], cluster_id="c")}
    (found,) = of_addresses(patient(looks, at="10.0.0.1"))
    assert found.level == "error" and "advertised.listeners" in found.fix
    (found,) = of_addresses(patient(looks, at="127.0.0.1"))
    assert found.level == "ok", "here it is right"


def test_two_brokers_behind_one_address_are_told() -> None:
    looks = {1: Look(Address("10.0.0.1", 9092), resolved=["10.0.0.1"], cluster_id="other")}
    (found,) = of_addresses(patient(looks, at="10.0.0.1"))
    assert found.level == "error" and "cluster other" in found.what


def test_disks_are_warned_of_before_they_are_full() -> None:
    disks = [
        DiskLook("/well", 100 * GB, 50 * GB, False),
        DiskLook("/little", 100 * GB, 9 * GB, False),
        DiskLook("/least", 100 * GB, 2 * GB, False),
        DiskLook("/gone", -1, -1, True),
    ]
    looks = {1: Look(Address("10.0.0.1", 9092), disks=disks)}
    found = {finding.what.split()[0]: finding.level for finding in of_disks(patient(looks, at="10.0.0.1"))}
    assert found == {"/little": "warning", "/least": "error", "directory": "error", "1": "ok"}


def test_each_broker_whose_clock_is_not_that_of_this_machine_is_told() -> None:
    looks = {broker: Look(Address("10.0.0.1", 9092), clock_ahead=ahead) for broker, ahead in AHEAD.items()}
    found = [(finding.level, finding.where, finding.what) for finding in of_clocks(patient(looks, at="10.0.0.1"))]
    assert found == [
        ("warning", "broker 2", "its clock is 3600 s ahead of this machine's"),
        ("warning", "broker 3", "its clock is 60 s behind this machine's"),
        ("ok", "clocks", "1 broker and this machine agree"),
    ]


def test_settings_that_contradict_each_other_are_told_with_what_to_set() -> None:
    found = {
        "default.replication.factor": "3",
        "min.insync.replicas": "3",
        "offsets.topic.replication.factor": "5",
        "replica.lag.time.max.ms": "500",
        "replica.fetch.wait.max.ms": "500",
        "message.max.bytes": "200",
        "socket.request.max.bytes": "100",
        "unclean.leader.election.enable": "true",
    }
    fixes = [fix for _, fix in contradictions(found, 3)]
    assert fixes == [
        "set min.insync.replicas=2",
        "lower offsets.topic.replication.factor, or add brokers",
        "raise replica.lag.time.max.ms",
        "raise socket.request.max.bytes",
        "set it to false",
    ]
    assert list(contradictions({"default.replication.factor": "3", "min.insync.replicas": "2"}, 3)) == []


def test_a_setting_that_is_not_the_same_on_all_brokers_is_told() -> None:
    looks = {broker: Look(Address("10.0.0.1", 9092)) for broker in (1, 2)}
    settings = {1: {"num.partitions": "1"}, 2: {"num.partitions": "6"}}
    (found,) = of_settings(patient(looks, settings, at="10.0.0.1"))
    assert found.what == "num.partitions differs: 1 on 1, 6 on 2" and "--broker default num.partitions=" in found.fix


@pytest.mark.parametrize(
    ("look", "lag", "leader", "said"),
    [
        (Look(Address("h", 1), problem="no broker answers at h:1"), 0, 2, "not reached: no broker answers"),
        (Look(Address("h", 1), disks=[DiskLook("/d", 100 * GB, 100, False)]), 0, 2, "its disk is full (/d)"),
        (Look(Address("h", 1)), 0, -1, "the metadata quorum has no leader"),
        (Look(Address("h", 1)), 1200, 2, "1,200 metadata entries behind"),
        (Look(Address("h", 1)), 0, 2, "broker 2, which leads the quorum, does not hear of it"),
    ],
)
def test_a_fenced_broker_is_said_to_be_fenced_for_the_reason_that_shows(
    look: Look, lag: int, leader: int, said: str
) -> None:
    assert said in why_fenced(look, lag, leader)


def test_the_limits_of_the_machine_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "sys/net/core").mkdir(parents=True)
    (tmp_path / "sys/net/core/somaxconn").write_text("128\n")
    fixes = [finding.fix for finding in of_this_machine(tmp_path)]
    assert any(f"net.core.somaxconn={BACKLOG_MIN}" in fix for fix in fixes)


def test_a_machine_whose_files_cannot_hold_a_segment_is_told_to_raise_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda limit: (1024, 1024 if limit == resource.RLIMIT_FSIZE else 1 << 20))
    levels = {finding.fix: finding.level for finding in of_this_machine(tmp_path)}
    assert levels["for brokers: LimitFSIZE=infinity in systemd, or ulimit -Hf unlimited"] == "error"


@pytest.mark.parametrize(
    ("problem", "fix"),
    [
        ("h:1 did not answer within 5 s", "waits for a majority of its --peers"),
        ("no broker answers at h:1 (connection refused)", "start a broker there"),
    ],
)
def test_a_broker_that_answers_nobody_is_not_said_to_be_missing(problem: str, fix: str) -> None:
    (found,) = of_bootstrap([Look(Address("h", 1), problem=problem)])
    assert fix in found.fix
    words = worded(BrokerUnreachable(["h:1"], problem), argparse.Namespace(timeout=15))
    assert words.hint is not None and ("--peers" in words.hint) == ("--peers" in fix)
