"""Questions of the consumer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from raftlog.wire.messages import incremental_alter_configs
from raftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raftlog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from tests.system.answers.asking import Asker
from tests.system.clients.groups import fresh_name
from tests.waiting import wait_until

GROUP_RESOURCE = 32
ASSIGNMENTS = "consumer.assignment.interval.ms"
PROBE_MS = 5001
NOTHING_NEW: dict[str, Any] = {
    "topic_partitions": None,
    "subscribed_topic_names": None,
    "rebalance_timeout_ms": -1,
}
"""The heartbeat of a member that has nothing to say."""


class Heartbeats:
    """Heartbeats in a group, by default the first one of member m1."""

    def __init__(self, asker: Asker, group: str, topic: str) -> None:
        self.asker, self.group, self.topic = asker, group, topic

    def __call__(self, label: str, *, version: int = 1, **fields: Any) -> Any:
        first = {
            "group_id": self.group,
            "member_id": "m1",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }
        request = ConsumerGroupHeartbeatRequest(**{**first, **fields})  # type: ignore[arg-type]
        return self.asker.ask(f"heartbeat, {label}", request, version)

    def owning(self, *partitions: int) -> dict[str, Any]:
        """The field that tells which partitions a member has."""
        topic_id = self.asker.topic_id(self.topic)
        owned = ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=list(partitions))
        return {"topic_partitions": [owned] if partitions else []}


def prepare(asker: Asker, group: str, topic: str) -> None:
    """Let the group make a new assignment with each change, not once a second at the most.

    Kafka's coordinators hear of that, and of a new topic, a bit later: another group tells when they have.
    """
    probe = fresh_name("probe")
    _configure(asker, group, {ASSIGNMENTS: "0"})
    _configure(asker, probe, {ASSIGNMENTS: "0", "consumer.heartbeat.interval.ms": str(PROBE_MS)})
    request = ConsumerGroupHeartbeatRequest(
        group_id=probe,
        member_id="p",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )

    def is_known() -> bool:
        answer = asker.quietly(request, 1)
        return answer.heartbeat_interval_ms == PROBE_MS and bool(answer.assignment.topic_partitions)

    wait_until(is_known, f"the coordinator knows of {topic}")


def _configure(asker: Asker, group: str, settings: dict[str, str]) -> None:
    configs = [incremental_alter_configs.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=configs
    )
    answer = asker.quietly(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0


def describe(asker: Asker, label: str, *groups: str, version: int = 1) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
    asker.ask(f"describe, {label}", request, version)


def heartbeats(asker: Asker) -> None:
    group, topic = asker.name("g"), asker.topic("a", 3)
    heartbeat = Heartbeats(asker, group, topic)
    prepare(asker, group, topic)
    _heartbeats_that_are_wrong(asker, heartbeat)
    _heartbeats_that_are_not(asker, heartbeat)
    heartbeat("join", version=0)
    heartbeat("a full one of an old epoch", member_epoch=1)
    heartbeat("a short one of an old epoch", member_epoch=1, **NOTHING_NEW)
    heartbeat("an old epoch, everything owned", member_epoch=1, **heartbeat.owning(0, 1, 2))
    heartbeat("an epoch of the future", member_epoch=9)
    heartbeat("a member that is not there", member_id="m9", member_epoch=1)
    heartbeat("to an assignor that nobody has", member_epoch=1, server_assignor="xx")
    heartbeat("m2 joins", member_id="m2")
    heartbeat("m2 waits", member_id="m2", member_epoch=3, **NOTHING_NEW)
    describe(asker, "two members", group)
    describe(asker, "in version 0", group, version=0)
    describe(asker, "a group that is not there", asker.name("none"))
    describe(asker, "no name", "")
    describe(asker, "twice", group, group)
    describe(asker, "nothing")
    describe(asker, "others", asker.name("g of both"), asker.name("g of unknown"))
    heartbeat("m1 hears", member_epoch=2, **NOTHING_NEW)
    heartbeat("m1 gives up all but two", member_epoch=2, **heartbeat.owning(0, 1))
    heartbeat("m1 gives up everything", member_epoch=2, **heartbeat.owning())
    heartbeat("m2 gets something", member_id="m2", member_epoch=3, **NOTHING_NEW)
    describe(asker, "settled", group)
    heartbeat("m2 leaves", member_id="m2", member_epoch=-1)
    heartbeat("m2 leaves again", member_id="m2", member_epoch=-1)
    describe(asker, "one is left", group)


def _heartbeats_that_are_wrong(asker: Asker, heartbeat: Heartbeats) -> None:
    heartbeat("no group", group_id="")
    heartbeat("a blank group", group_id="  ")
    heartbeat("no member id", member_id="")
    heartbeat("no time-out", rebalance_timeout_ms=-1)
    heartbeat("partitions of nobody", topic_partitions=None)
    heartbeat("joins with partitions", **heartbeat.owning(0))
    heartbeat("no subscription", subscribed_topic_names=None)
    by_regex: dict[str, Any] = {"subscribed_topic_names": None}
    heartbeat("a wrong regex", subscribed_topic_regex="(", **by_regex)
    heartbeat("a look ahead", subscribed_topic_regex="(?=a).*", **by_regex)
    heartbeat("a reference back", subscribed_topic_regex="(a)\\1", **by_regex)
    heartbeat("an assignor that nobody has", server_assignor="nope")
    heartbeat("an assignor without a name", server_assignor="")
    heartbeat("an instance without a name", instance_id="")
    heartbeat("a rack without a name", rack_id="")
    heartbeat("epoch -3", member_epoch=-3)
    heartbeat("epoch -2 without an instance", member_epoch=-2)
    heartbeat("leaves a group that is not there", member_epoch=-1)
    heartbeat("an instance leaves a group that is not there", member_epoch=-2, instance_id="i")
    heartbeat("epoch 5 of a group that is not there", member_epoch=5)


def _heartbeats_that_are_not(asker: Asker, heartbeat: Heartbeats) -> None:
    heartbeat("a time-out of 0", rebalance_timeout_ms=0, group_id=asker.name("g of 0"))
    heartbeat("a time-out of -5", rebalance_timeout_ms=-5, group_id=asker.name("g of -5"))
    heartbeat("subscribed to nothing", subscribed_topic_names=[], group_id=asker.name("g of nothing"))
    heartbeat("an unknown topic", subscribed_topic_names=["unknown"], group_id=asker.name("g of unknown"))
    heartbeat("a name for no topic", subscribed_topic_names=[".."], group_id=asker.name("g of dots"))
    empty: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": ""}
    heartbeat("an empty regex", group_id=asker.name("g of empty"), **empty)
    heartbeat("names and a regex", subscribed_topic_regex="zzz.*", group_id=asker.name("g of both"))


def static_members(asker: Asker) -> None:
    group, topic = asker.name("g"), asker.topic("a", 3)
    heartbeat = Heartbeats(asker, group, topic)
    prepare(asker, group, topic)
    heartbeat("m1 joins")
    heartbeat("s1 joins as i1", member_id="s1", instance_id="i1")
    heartbeat("another one joins as i1", member_id="s2", instance_id="i1")
    heartbeat("another one as i1", member_id="s2", instance_id="i1", member_epoch=3)
    heartbeat("an instance that is not there", member_id="s2", instance_id="i2", member_epoch=3)
    heartbeat("s1 goes for a while", member_id="s1", instance_id="i1", member_epoch=-2)
    describe(asker, "s1 is away", group)
    heartbeat("i1 is back as s2", member_id="s2", instance_id="i1")
    heartbeat("s1 leaves", member_id="s1", instance_id="i1", member_epoch=-1)
    describe(asker, "s2 is there", group)
    heartbeat("s2 leaves without its name", member_id="s2", member_epoch=-1)
    describe(asker, "s2 is gone", group)


def a_member_joins_again(asker: Asker) -> None:
    group, topic = asker.name("g"), asker.topic("a", 3)
    prepare(asker, group, topic)
    heartbeat = Heartbeats(asker, group, topic)
    heartbeat("joins")
    heartbeat("joins again")
