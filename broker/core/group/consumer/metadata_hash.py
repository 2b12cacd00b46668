"""A number that changes when the topics of a group do: created, deleted, more partitions, other racks (KIP-1101).

It is only ever compared with one that was computed here, so the function is not Kafka's; what goes into it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from raftlog.metadata.image import MetadataImage, TopicImage

_COUNT = Struct(">i")
_HASH = Struct(">q")

NO_TOPICS = 0


class TopicHashes:
    """The hashes of topics, each computed once for each state of the topic."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[TopicImage, bytes]] = {}

    def of_topics(self, names: Iterable[str], image: MetadataImage) -> int:
        """One number for all these topics, as far as there are any."""
        digest = blake2b(digest_size=_HASH.size)
        is_empty = True
        for name in sorted(names):
            topic = image.topics.get(name)
            if topic is not None:
                is_empty = False
                digest.update(self._of_topic(topic, image))
        if is_empty:
            return NO_TOPICS
        (value,) = _HASH.unpack(digest.digest())
        return int(value)

    def _of_topic(self, topic: TopicImage, image: MetadataImage) -> bytes:
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic:
            return known[1]
        value = _hash_topic(topic, image)
        self._known[topic.name] = (topic, value)
        return value

    def forget(self, name: str) -> None:
        """No group consumes the topic any more."""
        self._known.pop(name, None)


def _hash_topic(topic: TopicImage, image: MetadataImage) -> bytes:
    parts = [topic.topic_id, topic.name.encode(), _COUNT.pack(len(topic.partitions))]
    racks_of = {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack is not None}
    for partition in topic.partitions if racks_of else ():
        parts.append(_COUNT.pack(partition.partition_id))
        for rack in sorted(racks_of[node] for node in partition.replicas if node in racks_of):
            # With its length: "ab" and "c" are not "a" and "bc".
            parts.append(_COUNT.pack(len(rack)) + rack.encode())
    return blake2b(b"".join(parts), digest_size=16).digest()
