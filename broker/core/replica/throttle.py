"""Throttled replication (KIP-73): which replicas are throttled, and when there were too many bytes.

Only replicas that are not in sync are ever held back; a throttle must not make an in-sync replica fall behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.broker.core.byte_rate import UNLIMITED, ByteRate
from raftlog.metadata.config_definition import REPLICA
from raftlog.wire.ids import BrokerId

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class ThrottledReplicas:
    """The replicas of one topic that are throttled on one side: `[partition]:[broker],…`, or `*` for all."""

    __slots__ = ("_all", "_replicas")

    def __init__(self, text: str) -> None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        self._all = "*" in names
        # What is no replica is passed over: the text may be of a version that took more, and is replayed everywhere.
        found = [match for match in map(REPLICA.fullmatch, names) if match is not None]
        self._replicas = {(int(match[1]), int(match[2])) for match in found}

    def __contains__(self, replica: tuple[int, int]) -> bool:
        """Whether a replica (partition, broker) is throttled."""
        return self._all or replica in self._replicas


class Throttles:
    """Both sides of one broker, as the metadata set them."""

    __slots__ = ("_topics", "followers", "leaders")

    def __init__(self) -> None:
        self.leaders = ByteRate()
        self.followers = ByteRate()
        self._topics: dict[str, tuple[ThrottledReplicas, ThrottledReplicas]] = {}

    def set_rates(self, broker_configs: Mapping[str, str]) -> None:
        """Take the broker's dynamic settings."""
        self.leaders.set_rate(int(broker_configs.get(LEADER_RATE, UNLIMITED)))
        self.followers.set_rate(int(broker_configs.get(FOLLOWER_RATE, UNLIMITED)))

    def set_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Take a topic's settings."""
        leaders, followers = configs.get(LEADER_REPLICAS, ""), configs.get(FOLLOWER_REPLICAS, "")
        if leaders or followers:
            self._topics[topic] = ThrottledReplicas(leaders), ThrottledReplicas(followers)
        else:
            self._topics.pop(topic, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is throttled: asked for every fetch."""
        return not self._topics

    def on_leader(self, topic: str, index: int, follower_id: int) -> bool:
        """Whether the leader throttles what it sends to this follower."""
        found = self._topics.get(topic)
        return found is not None and (index, follower_id) in found[0]

    def on_follower(self, topic: str, index: int, node_id: BrokerId) -> bool:
        """Whether this broker throttles what it fetches."""
        found = self._topics.get(topic)
        return found is not None and (index, node_id) in found[1]
