"""What an operator does wrong with a cluster: each is refused with words that say what to do."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raftlog.testing import BrokerDied, BrokerProcess, cluster
from tests.conftest import FreePort
from tests.system.cluster.world import World
from tests.waiting import wait_until

Make = Callable[..., BrokerProcess]
Elsewhere = tuple[str, str]
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


@pytest.fixture
def peers(shared: World) -> str:
    (given,) = {each.extra_arguments for each in shared.cluster.brokers}
    return given[given.index("--peers") + 1]


@pytest.fixture
def make(tmp_path: Path, peers: str) -> Iterator[Make]:
    """`make(1, directory, "--observer")` is a broker process with the cluster's peers; all end with the test."""
    made: list[BrokerProcess] = []

    def make_one(
        node_id: int, directory: Path, *arguments: str, peers: str | None = peers, port: int = 0
    ) -> BrokerProcess:
        given = () if peers is None else ("--peers", peers)
        log_file = tmp_path / f"{len(made)}.log"
        process = BrokerProcess(node_id, directory, port=port, log_file=log_file, extra_arguments=(*given, *arguments))
        made.append(process)
        return process

    yield make_one
    for process in made:
        process.kill()


def refusal(process: BrokerProcess) -> str:
    with pytest.raises(BrokerDied) as died:
        process.start()
    assert process.returncode == 1
    return str(died.value)


@pytest.fixture
def elsewhere(free_port: FreePort) -> Elsewhere:
    """Where no other broker listens for peers."""
    return "--peer-listen", f"127.0.0.1:{free_port()}"


def test_two_brokers_on_one_directory(shared: World, make: Make, elsewhere: Elsewhere) -> None:
    said = refusal(make(1, shared.cluster.brokers[0].data_dir, *elsewhere))
    assert "two brokers must not share a directory" in said and "--data-dir" in said


def test_a_directory_of_another_broker(shared: World, make: Make, elsewhere: Elsewhere) -> None:
    said = refusal(make(2, shared.cluster.brokers[0].data_dir, *elsewhere))
    assert "node.id=1" in said and "this broker has 2" in said


def test_a_peer_port_that_is_taken(make: Make, tmp_path: Path) -> None:
    said = refusal(make(1, tmp_path / "new"))
    assert "cannot listen for peers" in said and "is this broker running already?" in said


def test_a_client_port_that_is_taken(shared: World, make: Make, tmp_path: Path) -> None:
    said = refusal(make(4, tmp_path / "new", port=shared.cluster.brokers[0].port))
    assert f"cannot listen on 127.0.0.1:{shared.cluster.brokers[0].port}" in said and "--listen" in said


@pytest.mark.parametrize("listener", ["listeners", "raftlog.metrics.listener"])
def test_a_broker_alone_whose_port_was_taken_can_be_given_peers(
    shared: World, make: Make, elsewhere: Elsewhere, tmp_path: Path, listener: str
) -> None:
    taken = f"127.0.0.1:{shared.cluster.brokers[0].port}"
    setting = f"listeners=PLAINTEXT://{taken}" if listener == "listeners" else f"{listener}={taken}"
    said = refusal(make(4, tmp_path / "new", "--set", setting, peers=None))
    assert f"cannot listen on {taken}" in said or "another port with" in said
    process = make(4, tmp_path / "new", "--observer", *elsewhere)
    process.start()
    assert "serving as epoch" in process.log()
    process.stop()


def test_a_number_that_another_broker_has(make: Make, elsewhere: Elsewhere, tmp_path: Path) -> None:
    process = make(2, tmp_path / "new", *elsewhere)
    process.start(wait=False)
    wait_until(lambda: "node id 2 is used twice" in process.log(), "the mistake is told")
    assert "give each broker an --id of its own" in process.log()


def test_a_broker_that_ran_alone_is_given_peers(make: Make, elsewhere: Elsewhere, tmp_path: Path) -> None:
    with cluster(1, directory=tmp_path / "alone") as alone:
        directory = alone.brokers[0].data_dir
    said = refusal(make(1, directory, *elsewhere))
    assert "ran without peers" in said and "--peers naming only itself" in said


def test_a_member_of_a_quorum_is_started_alone(make: Make, tmp_path: Path) -> None:
    with cluster(2, directory=tmp_path / "two") as two:
        directory = two.brokers[0].data_dir
    said = refusal(make(1, directory, peers=None))
    assert "member of a quorum" in said and "--peers" in said


def test_a_quorum_that_cannot_be_reached_is_waited_for_in_words(
    make: Make, tmp_path: Path, free_port: FreePort
) -> None:
    nobody = ",".join(f"{node}@127.0.0.1:{free_port()}" for node in (1, 2, 3))
    process = make(1, tmp_path / "new", peers=nobody)
    process.start(wait=False)
    wait_until(lambda: "no leader of the metadata quorum" in process.log(), "it says what it waits for")
    assert "voters that are not connected: [2, 3] (2: connection refused at 127.0.0.1:" in process.log()
    assert process.stop() == 0


def test_an_own_address_of_another_machine(make: Make, tmp_path: Path) -> None:
    said = refusal(make(1, tmp_path / "new", peers="1@192.0.2.1:9192,2@192.0.2.2:9192"))
    assert "cannot listen for peers" in said and "correct it, or use --peer-listen" in said


def test_a_directory_of_another_cluster(make: Make, elsewhere: Elsewhere, tmp_path: Path) -> None:
    with cluster(3, directory=tmp_path / "theirs") as theirs:
        directory = theirs.brokers[2].data_dir
    process = make(3, directory, *elsewhere)
    process.start(wait=False)
    wait_until(lambda: "belongs to cluster" in process.log(), "the mistake is told")
    assert "or the data directory of the one that is in the wrong cluster" in process.log()


def test_a_second_directory_of_another_cluster(make: Make, tmp_path: Path) -> None:
    with cluster(1, directory=tmp_path / "theirs") as theirs:
        directory = theirs.brokers[0].data_dir
    both = f"log.dirs={tmp_path / 'new'},{directory}"
    said = refusal(make(1, tmp_path / "new", "--set", both, peers=None))
    assert f"{directory} belongs to cluster" in said and "whose metadata are missing" in said
    alone = make(1, tmp_path / "new", peers=None)
    alone.start()
    alone.stop()
    said = refusal(make(1, tmp_path / "new", "--set", both, peers=None))
    assert f"{directory}/meta.properties says cluster.id=" in said and "Use the data directory of this broker" in said


def test_settings_that_brokers_must_share_and_do_not(make: Make, elsewhere: Elsewhere, tmp_path: Path) -> None:
    process = make(4, tmp_path / "new", *elsewhere, "--set", "min.insync.replicas=1")
    process.start()
    wait_until(lambda: "min.insync.replicas is 1 in the settings of this broker and 2" in process.log(), "it is told")
    assert "raftlog config set --broker" in process.log() and "has no vote in the metadata quorum" in process.log()


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed")
def test_a_clock_that_is_an_hour_off(
    make: Make, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = make(4, tmp_path / "new", *elsewhere)
    with monkeypatch.context() as environment:
        for name, value in (("LD_PRELOAD", FAKETIME[0]), ("FAKETIME", "+3600s"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")):
            environment.setenv(name, value)
        process.start(wait=False)
    wait_until(lambda: "the clock of this machine is 3600 s ahead" in process.log(), "the clock is told of")
    assert "let NTP set it" in process.log()
