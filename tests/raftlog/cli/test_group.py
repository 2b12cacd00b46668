from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from raftlog.cli.group import runs
from raftlog.testing import BrokerProcess
from tests.conftest import Broker
from tests.raftlog.cli.conftest import Run


@pytest.fixture
def group(on_broker: Run, topic: str) -> str:
    """A group with no members that has read ten records of partition 0 and five of partition 1."""
    for partition, count in (("0", 10), ("1", 5)):
        assert on_broker("produce", topic, "-p", partition, stdin="x\n" * count).code == 0
    assert on_broker("consume", topic, "-G", topic, "-e").out == "x\n" * 15
    return topic


def committed(on_broker: Run, group: str) -> dict[int, int]:
    (described,) = on_broker("group", "describe", group, "--json").json["groups"]
    return {each["partition"]: each["committed"] for each in described["offsets"]}


def test_a_group_goes_on_where_it_stopped(on_broker: Run, group: str) -> None:
    assert on_broker("consume", group, "-G", group, "-e").out == ""
    assert on_broker("produce", group, "-p", "0", stdin="new\n").code == 0
    assert on_broker("consume", group, "-G", group, "-e").out == "new\n"


def test_a_group_is_listed_and_described_with_its_lag(on_broker: Run, group: str) -> None:
    assert on_broker("produce", group, "-p", "1", stdin="y\ny\n").code == 0
    listed = on_broker("group", "list", "--json").json["groups"]
    (here,) = [each for each in listed if each["group"] == group]
    assert 0 < here.pop("lag_seconds") < 60
    said = {"state": "Empty", "type": "classic", "protocol": "consumer", "members": 0, "lag": 2}
    assert here == {"group": group, **said}
    (described,) = on_broker("group", "describe", group, "--json").json["groups"]
    assert described["state"] == "Empty" and described["members"] == []
    lags = {each["partition"]: each["lag"] for each in described["offsets"]}
    assert (lags[0], lags[1]) == (0, 2)
    assert {each["partition"]: each["stable_lag"] for each in described["offsets"]}[1] == 2
    waited = {each["partition"]: each["lag_seconds"] for each in described["offsets"]}
    assert waited[0] == 0 < waited[1] < 60
    assert f"{group}  Empty, 0 members, coordinator 1, lag 2" in on_broker("group", "describe", group).out


def test_what_an_open_transaction_holds_back_is_told(on_broker: Run, broker: Broker, group: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(group, b"x", partition=0)
    producer.flush(30)
    (described,) = on_broker("group", "describe", group, "--json").json["groups"]
    (held,) = [each for each in described["offsets"] if each["partition"] == 0]
    assert (held["lag"], held["stable_lag"]) == (1, 0)
    assert "STABLE LAG" in on_broker("group", "describe", group).out
    producer.abort_transaction(30)


def test_groups_are_listed_by_state(on_broker: Run, group: str) -> None:
    assert group in on_broker("group", "list", "--state", "Empty").out
    assert group not in on_broker("group", "list", "--state", "Stable").out


def test_a_state_that_no_group_can_have_is_refused(on_broker: Run) -> None:
    refused = on_broker("group", "list", "--state", "stabel")
    assert refused.code == 2 and "did you mean Stable?" in refused.err


@pytest.mark.long
def test_a_list_of_groups_says_when_there_may_be_others(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    delay = {"group.initial.rebalance.delay.ms": "0"}
    settings = {"log.dirs": f"{one},{two}", "offsets.topic.num.partitions": "2", **delay}
    broker = BrokerProcess(1, one, settings=settings, log_file=tmp_path / "log")
    broker.start()
    try:
        here = ("-b", broker.address)
        assert run("topic", "create", "t", *here).code == 0 and run("produce", "t", *here, stdin="x\n").code == 0
        names = ["a", "b"]  # one in each partition, and those in different directories
        for name in names:
            assert run("consume", "t", "-G", name, "-e", *here).code == 0
        listed = run("group", "list", "--json", *here)
        assert listed.code == 0 and [each["group"] for each in listed.json["groups"]] == names
        broker.stop()
        two.rename(tmp_path / "elsewhere")
        broker.start()
        listed = run("group", "list", "--json", *here)
        assert listed.code == 1 and len(listed.json["groups"]) == 1
        assert listed.error["code"] == "COORDINATOR_NOT_AVAILABLE"
        assert "1 partition of __consumer_offsets without a leader" in listed.error["message"]
        (lost,) = set(names) - {each["group"] for each in listed.json["groups"]}
        described = run("group", "describe", lost, "--json", "--timeout", "1", *here)
        assert described.code == 1 and "raftlog topic describe __consumer_offsets" in described.error["hint"]
        assert "there are no groups" not in run("group", "list", "--state", "Stable", *here).err
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("how", "first", "second"),
    [
        (["--to-earliest"], 0, 0),
        (["--to-latest"], 10, 5),
        (["--to-offset", "3"], 3, 3),
        (["--to-offset", "7"], 7, 5),
        (["--shift-by", "-2"], 8, 3),
        (["--shift-by", "4"], 10, 5),
        (["--by-duration", "1h"], 0, 0),
        (["--to-datetime", "2001-01-01"], 0, 0),
        (["--to-datetime", "2101-01-01"], 10, 5),
    ],
)
def test_offsets_are_reset_as_planned(on_broker: Run, group: str, how: list[str], first: int, second: int) -> None:
    command = ["group", "reset-offsets", group, "--topic", f"{group}:0-1", *how]
    plan = on_broker(*command, "--json").json
    assert plan["executed"] is False
    assert {each["partition"]: each["new"] for each in plan["offsets"]} == {0: first, 1: second}
    before = committed(on_broker, group)
    assert (before[0], before[1]) == (10, 5)
    assert on_broker(*command, "--execute").code == 0
    after = committed(on_broker, group)
    assert (after[0], after[1]) == (first, second)


def test_without_execute_nothing_is_done_and_the_user_is_told(on_broker: Run, group: str) -> None:
    outcome = on_broker("group", "reset-offsets", group, "--all-topics", "--to-earliest", "--dry-run")
    assert outcome.code == 0 and "WOULD BE" in outcome.out and "--execute does it" in outcome.err
    assert committed(on_broker, group)[0] == 10


def test_a_place_outside_the_log_is_moved_inside_and_noted(on_broker: Run, group: str) -> None:
    outcome = on_broker("group", "reset-offsets", group, "--topic", f"{group}:1", "--to-offset", "99")
    assert "99 is outside 0 to 5" in outcome.out


def test_offsets_can_be_set_for_a_group_that_never_ran(on_broker: Run, topic: str, name: str) -> None:
    group = f"{name}-new"
    assert on_broker("produce", topic, "-p", "0", stdin="a\nb\n").code == 0
    done = on_broker("group", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute")
    assert done.code == 0
    assert committed(on_broker, group) == {0: 2, 1: 0, 2: 0}


def test_what_to_reset_must_be_said(on_broker: Run, group: str) -> None:
    assert on_broker("group", "reset-offsets", group, "--to-earliest").code == 2
    assert on_broker("group", "reset-offsets", group, "--all-topics").code == 2
    assert on_broker("group", "reset-offsets", group, "--topic", f"{group}:9", "--to-earliest").code == 1


def test_an_unknown_group_offers_the_nearest_one(on_broker: Run, group: str) -> None:
    wrong = group.replace("cli", "cil")
    outcome = on_broker("group", "describe", wrong)
    assert outcome.code == 1 and f"there is no group {wrong!r}" in outcome.err and "did you mean" in outcome.err
    assert on_broker("group", "delete", wrong).code == 1


def test_a_deleted_group_starts_anew(on_broker: Run, group: str) -> None:
    assert "would be deleted (it is Empty)" in on_broker("group", "delete", group, "--dry-run").out
    assert on_broker("group", "delete", group, group).code == 0
    assert on_broker("group", "describe", group).code == 1
    assert on_broker("consume", group, "-G", group, "-e").out == "x\n" * 15


def test_partitions_are_shown_as_runs() -> None:
    assert runs({"b": [5, 0, 1, 2], "a": [3]}) == "a[3] b[0-2,5]"
    assert runs({}) == "none"
