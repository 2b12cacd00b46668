"""The group coordinator's long work, step by step, without a broker: what it costs, and how long a step is.

    python -m benchmarks.group_steps [--offsets 100000] [--members 2000] [--partitions 2000] [--rounds 5]

Processor time of this thread; between two steps a broker serves others. The garbage collector rests, as it does while a
broker loads.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator

from raftlog.broker.core.coordinator.loading import CoordinatorLogReader
from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer.large_target import assign_in_steps
from raftlog.broker.core.group.consumer.member import Subscription
from raftlog.broker.core.group.consumer.records import GroupEpoch, GroupEpochRecord, MemberRecord
from raftlog.broker.core.group.loading import replay_common_offsets
from raftlog.broker.core.group.member import MemoryBudget
from raftlog.broker.core.group.records import CommittedOffset, TopicOffsets
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.topic_offsets import pack_topic_offsets
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.wire.batch import encode_packed_batch
from raftlog.wire.ids import LeaderEpoch, Offset, PartitionEpoch

NOW = Now(0, 1_700_000_000_000)
GROUP, TOPIC, TOPIC_ID = "group", "topic", b"t" * 16
OFFSETS_A_GROUP = 1_000


def empty_shard(partitions: int = 0) -> GroupCoordinatorShard:
    """A shard that knows one topic with so many partitions."""
    states = tuple(
        PartitionState(index, 1, LeaderEpoch(0), PartitionEpoch(0), replicas=(1,), isr=(1,))
        for index in range(partitions)
    )
    topic = TopicImage(TOPIC, TOPIC_ID, states)
    empty = MetadataImage()
    image = MetadataImage(
        version=1,
        topics=empty.topics.with_changes({TOPIC: topic}),
        topics_by_id=empty.topics_by_id.with_changes({TOPIC_ID: topic}),
    )
    settings = ConsumerGroupSettings()
    return GroupCoordinatorShard(GroupConfig(), MemoryBudget(), image, lambda image, group_id: settings)


def loading(offsets: int) -> Iterator[None]:
    """Load so many committed offsets, a thousand of each group in one batch."""
    shard, reader = empty_shard(), CoordinatorLogReader(0)
    for batch in batches(offsets):
        yield from reader.read(batch)
    for rest in replay_common_offsets(shard, reader.survivors()):
        assert rest is None
        yield
    assert sum(len(group.offsets.by_topic[TOPIC]) for group in shard.groups.values()) == offsets


_batches: dict[int, list[bytes]] = {}


def batches(offsets: int) -> list[bytes]:
    """The log to load, made once."""
    if offsets not in _batches:
        value = CommittedOffset(Offset(0), commit_timestamp_ms=1, topic_id=TOPIC_ID)
        values = {number: value._replace(offset=Offset(number)) for number in range(OFFSETS_A_GROUP)}
        made = _batches[offsets] = []
        for number in range(offsets // OFFSETS_A_GROUP):
            packed = pack_topic_offsets(TopicOffsets(f"{GROUP}-{number}", TOPIC, values))
            made.append(encode_packed_batch(packed.pack(0), packed.records, 1))
    return _batches[offsets]


def assigning(members: int, partitions: int) -> Iterator[None]:
    """Compute and replay the first target assignment of a group."""
    shard = empty_shard(partitions)
    for number in range(members):
        shard.replay(MemberRecord(GROUP, f"member-{number}", Subscription(topics=frozenset({TOPIC}))))
    shard.replay(GroupEpochRecord(GROUP, GroupEpoch(2, 0)))
    shard.assigning[GROUP] = None
    yield
    for effects in assign_in_steps(shard, GROUP, NOW):
        for write in effects.writes if effects is not None else ():
            for record in write.records:
                shard.replay(record)
        yield
    group = shard.consumer(GROUP)
    assert group is not None and group.target_epoch.epoch == 2


def measure(what: str, steps: Iterator[None], first: int) -> str:
    """Take all steps; those before the `first` are preparation."""
    taken: list[float] = []
    begin = time.thread_time()
    for _ in steps:
        end = time.thread_time()
        taken.append(end - begin)
        begin = end
    taken = taken[first:]
    return f"{what}: {1000 * sum(taken):.0f} ms in {len(taken):,} steps, the longest {1000 * max(taken):.1f} ms"


def main() -> int:
    """Measure both, again and again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offsets", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    batches(options.offsets)
    gc.disable()
    group = f"{options.partitions:,} partitions assigned to {options.members:,} members"
    for _ in range(options.rounds):
        print(measure(f"{options.offsets:,} committed offsets loaded", loading(options.offsets), 0))
        print(measure(group, assigning(options.members, options.partitions), 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
