"""What operators do to a running cluster: look, move leaders and replicas, change the quorum."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest

from raftlog.testing import BrokerProcess, Kafka
from raftlog.testing.ports import ReservedPort
from tests.raftlog.cli.conftest import Run
from tests.raftlog.cli.conftest import run as in_process
from tests.system.clients.confluent import produce, read_all
from tests.system.cluster.world import World, Writer
from tests.waiting import wait_until

run = in_process  # the fixture


@pytest.fixture
def operate(world: World, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands against the three brokers."""
    monkeypatch.setenv("RAFTLOG_BOOTSTRAP_SERVERS", world.bootstrap)
    return run


def status(operate: Run) -> Any:
    return operate("cluster", "status", "--json").json


def test_the_status_tells_who_is_well_and_who_is_not(world: World, operate: Run, name: str) -> None:
    world.create(name, 3)
    described = status(operate)
    assert [each["id"] for each in described["brokers"]] == [1, 2, 3]
    assert not any(each["fenced"] for each in described["brokers"])
    assert sorted(described["quorum"]["voters"]) == [1, 2, 3]
    assert described["partitions"]["under_replicated"] == described["partitions"]["offline"] == []
    victim = world.follower(name)
    victim.kill()
    wait_until(lambda: len(status(operate)["partitions"]["under_replicated"]) >= 3, "under-replicated partitions")
    (broker,) = [each for each in status(operate)["brokers"] if each["id"] == victim.node_id]
    assert broker["fenced"] and broker["leaders"] == 0
    text = operate("cluster", "status").out
    assert "under-replicated:" in text and "fenced" in text
    world.restore()
    wait_until(lambda: status(operate)["partitions"]["under_replicated"] == [], "all are in sync again")


def test_the_quorum_is_handed_over(world: World, operate: Run) -> None:
    before = operate("quorum", "status", "--json").json
    other = next(each["id"] for each in before["members"] if each["role"] == "voter")
    assert operate("quorum", "transfer", "--to", str(other)).code == 0
    after = operate("quorum", "status", "--json").json
    assert after["leader"] == other and after["term"] > before["term"]
    assert operate("quorum", "transfer").code == 0
    assert operate("quorum", "status", "--json").json["leader"] != other


def test_leaders_go_back_to_their_preferred_brokers(world: World, operate: Run, name: str) -> None:
    world.create(name, 3)
    before = {each.id: each.leader for each in world.described(name)}
    world.cluster.broker(1).kill()
    wait_until(lambda: {each.leader for each in world.partitions(name)} == {2, 3}, "others lead")
    refused = operate("partition", "elect", "--topic", name)
    assert refused.code == 1 and "the preferred leader is not in sync or not there" in refused.err
    world.cluster.broker(1).start()
    world.wait_until_in_sync(name)
    assert operate("partition", "elect", "--topic", name).code == 0
    wait_until(lambda: {each.id: each.leader for each in world.partitions(name)} == before, "the leaders are back")


def test_a_broker_joins_votes_takes_partitions_and_leaves(
    world: World, operate: Run, name: str, tmp_path: Path
) -> None:
    topic = world.create(name, 3)
    records = [{"value": b"%d" % number} for number in range(300)]
    produce(world.bootstrap, topic, records)
    (peers,) = {command[command.index("--peers") + 1] for command in [each.command for each in world.cluster.brokers]}
    peer_port, port = ReservedPort(), ReservedPort()
    fourth = BrokerProcess(
        4,
        tmp_path / "broker-4",
        port=port.number,
        settings=world.cluster.brokers[0].settings,
        log_file=tmp_path / "broker-4.log",
        extra_arguments=["--peers", peers, "--observer", "--peer-listen", f"127.0.0.1:{peer_port.number}"],
    )
    try:
        fourth.start()
        wait_until(lambda: 4 in status(operate)["quorum"]["observers"], "the fourth follows")
        assert operate("quorum", "add", f"4@127.0.0.1:{peer_port.number}").code == 0
        assert sorted(status(operate)["quorum"]["voters"]) == [1, 2, 3, 4]
        move(operate, topic, [2, 3, 4], tmp_path, "--throttle", "50000000")
        wait_until(lambda: throttle(operate, topic) == ["*", "50000000"], "all brokers know of the throttle")
        with Writer(world.bootstrap, topic) as writer:
            wait_until(lambda: is_done(operate), "the move is complete", 60)
            writer.wait_for_more()
        writer.check_no_errors()
        wait_until(lambda: throttle(operate, topic) == [], "all brokers know that it is lifted")
        wait_until(lambda: replicas_of(world, topic) == {2, 3, 4}, "all brokers know where the partitions are")
        move(operate, topic, [1, 2, 3], tmp_path)
        wait_until(lambda: is_done(operate), "the move back is complete", 60)
        found = read_all(world.bootstrap, topic, 300 + writer.acknowledged, partitions=3)
        assert len({(message.partition(), message.offset()) for message in found}) == 300 + writer.acknowledged
        assert operate("quorum", "remove", "4").code == 0
        refused = operate("cluster", "unregister", "4")
        assert refused.code == 1 and "stop" in refused.err
    finally:
        fourth.stop()
        peer_port.release()
        port.release()
    wait_until(lambda: operate("cluster", "unregister", "4").code == 0, "the fourth is forgotten")
    assert [each["id"] for each in status(operate)["brokers"]] == [1, 2, 3]


def throttle(operate: Run, topic: str) -> list[str]:
    """What is set on the topic and on broker 2 to slow replication down."""
    settings = [
        each
        for of in (("--topic", topic), ("--broker", "2"))
        for each in operate("config", "list", *of, "--json").json["configs"]
    ]
    return sorted({each["value"] for each in settings if "replication.throttled" in each["name"]})


def move(operate: Run, topic: str, brokers: list[int], directory: Path, *options: str) -> None:
    several = ("--brokers", ",".join(map(str, brokers)), "--replication-factor", str(len(brokers)))
    plan = operate("partition", "reassign", "--plan", "--topics", topic, *several)
    (directory / "plan.json").write_text(plan.out)
    begun = operate("partition", "reassign", "--execute", str(directory / "plan.json"), "--json", *options)
    assert begun.code == 0, begun.err


def replicas_of(world: World, topic: str) -> set[int]:
    """The brokers that have replicas."""
    return {broker for each in world.partitions(topic) for broker in each.replicas}


def is_done(operate: Run) -> bool:
    under_way: list[Any] = operate("partition", "reassign", "--status", "--json").json["reassignments"]
    return not under_way


def test_a_move_is_called_off(world: World, operate: Run, name: str, tmp_path: Path) -> None:
    topic = world.create(name)
    (before,) = [each.replicas for each in world.described(topic)]
    plan = {"partitions": [{"topic": topic, "partition": 0, "replicas": [before[0], before[1]]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert operate("partition", "reassign", "--execute", str(tmp_path / "plan.json")).code == 0
    assert operate("partition", "reassign", "--cancel").code == 0
    assert is_done(operate)


def test_replicas_that_are_being_added_are_not_missed(world: World, operate: Run, name: str, tmp_path: Path) -> None:
    assert operate("topic", "create", name, "--replication-factor", "2").code == 0
    (kept,) = [each.replicas for each in world.described(name)]
    (down,) = {1, 2, 3} - set(kept)
    world.cluster.broker(down).kill()
    wait_until(lambda: "fenced" in operate("cluster", "status").out, "it is down")
    plan = {"partitions": [{"topic": name, "partition": 0, "replicas": [*kept, down]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert operate("partition", "reassign", "--execute", str(tmp_path / "plan.json")).code == 0
    wait_until(lambda: set(world.partitions(name)[0].replicas) == {1, 2, 3}, "the third is being added")
    assert not is_done(operate)
    assert name not in {each["topic"] for each in status(operate)["partitions"]["under_replicated"]}
    asked = ("topic", "describe", name, "--under-replicated-partitions", "--json")
    assert operate(*asked).json == {"topics": []}
    world.cluster.broker(down).start()
    wait_until(lambda: is_done(operate), "it is added", 60)
    world.cluster.broker(down).kill()
    wait_until(lambda: len(operate(*asked).json["topics"]) == 1, "now it is missed")


def test_a_throttle_waits_for_a_broker_that_is_down(world: World, operate: Run, name: str, tmp_path: Path) -> None:
    topic = world.create(name)
    down = world.follower(topic).node_id
    others = [each.node_id for each in world.cluster.brokers if each.node_id != down]
    world.cluster.broker(down).kill()
    wait_until(lambda: down not in world.partitions(topic)[0].isrs, "it has left the ISR")
    move(operate, topic, others, tmp_path, "--throttle", "50000000")
    wait_until(lambda: [sorted(each.replicas) for each in world.partitions(topic)] == [others], "it was moved")
    world.cluster.broker(down).start()
    assert throttle_of(operate, down) == ["50000000"] * 2
    world.cluster.broker(down).kill()
    wait_until(lambda: "fenced" in operate("cluster", "status").out, "it is down")
    assert is_done(operate)
    world.cluster.broker(down).start()
    assert throttle_of(operate, down) == []


def throttle_of(operate: Run, broker: int) -> list[str]:
    """The rates that are set for a broker, which was just started."""
    asked = ("config", "list", "--broker", str(broker), "--json")
    wait_until(lambda: operate(*asked).code == 0, "all have heard that it is there")
    return [each["value"] for each in operate(*asked).json["configs"] if "throttled.rate" in each["name"]]


def test_health_and_readiness_over_http(world: World, tmp_path: Path) -> None:
    port = ReservedPort()
    broker = world.cluster.broker(3)
    plain = broker.extra_arguments
    broker.stop()
    broker.extra_arguments = (*plain, "--health-listen", f"127.0.0.1:{port.number}")
    try:
        broker.start()
        wait_until(lambda: ask(port.number, "/ready")[0] == 200, "the broker is ready")
        assert ask(port.number, "/health") == (200, {"status": "alive"})
        # Without the others there is no quorum, and clients are better sent elsewhere.
        for node in (1, 2):
            world.cluster.broker(node).kill()
        wait_until(lambda: ask(port.number, "/ready")[0] == 503, "the broker is not ready")
        assert ask(port.number, "/health")[0] == 200
    finally:
        broker.kill()
        broker.extra_arguments = plain
        port.release()


def ask(port: int, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_partitions_below_min_isr_are_shown_and_told_by_the_exit_code(world: World, operate: Run, name: str) -> None:
    topic = world.create(name, min_insync_replicas="3")
    wait_until(lambda: operate("cluster", "status").code == 0, "all is well")
    world.follower(topic).kill()

    def lacking() -> list[dict[str, Any]]:
        return [each for each in status(operate)["partitions"]["below_min_isr"] if each["topic"] == topic]

    # The one that was killed may have led the quorum, and other topics may lack it, too.
    wait_until(lacking, "it is told")
    (partition,) = lacking()
    assert len(partition["isr"]) == 2
    told, found = operate("cluster", "status"), operate("doctor")
    assert told.code == found.code == 1
    assert topic in told.out and re.search(r"[1-9] below min.insync.replicas\n", told.out)
    assert re.search(r"error    partitions: [1-9] below min.insync.replicas, of topics like ", found.out)


def test_a_quorum_without_a_leader_is_told_by_the_exit_code(world: World, operate: Run) -> None:
    world.wait_until_in_sync(world.create("well", 3))
    for node in (1, 2):
        world.cluster.broker(node).kill()
    left = ("-b", world.cluster.broker(3).address)
    wait_until(lambda: "NO LEADER" in operate("cluster", "status", *left).out, "the leader is lost")
    assert operate("cluster", "status", *left).code == 1


def test_the_clock_of_each_broker_is_compared_with_that_of_this_machine(run: Run) -> None:
    def doctor() -> str:
        return run("doctor", "-b", kafka.bootstrap_servers).out

    # At least one of them does not lead the quorum.
    with Kafka(3) as kafka, kafka.faults.broker(2).clock.jump(-3600), kafka.faults.broker(3).clock.jump(7200):
        wait_until(lambda: "behind" in doctor() and "ahead of" in doctor(), "both are told")
        found = doctor()
    assert "warning  broker 2: its clock is 36" in found and "s behind this machine's" in found
    assert "warning  broker 3: its clock is 7" in found and "s ahead of this machine's" in found
    assert "ok       clocks: 1 broker and this machine agree" in found
