"""Random records and images for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from raftlog.metadata import records as r

ids = st.sampled_from([bytes([n]) * 16 for n in range(1, 6)])
# No two of them collide: `decide` never lets such topics exist together.
names = st.sampled_from(["a", "b.c", "d_e", "f", "é"])
small = st.integers(0, 4)
brokers = st.lists(small, min_size=1, max_size=4, unique=True).map(tuple)
epochs = st.integers(0, 2**31 - 1)


@st.composite
def partitions(draw: st.DrawFn, index: int) -> r.PartitionState:
    replicas = draw(brokers)
    isr = replicas[: draw(st.integers(1, len(replicas)))]
    leader = draw(st.sampled_from([*isr, r.NO_LEADER]))
    state = r.PartitionState(index, leader, draw(epochs), draw(epochs), replicas, isr)
    if draw(st.booleans()):
        state = state._replace(
            directories=tuple(b"d" * 16 for _ in replicas),
            eligible_leader_replicas=draw(brokers),
            adding_replicas=draw(brokers),
            last_known_leader=draw(small),
            leader_recovering=draw(st.booleans()),
        )
    return state


@st.composite
def partition_lists(draw: st.DrawFn, first: int = 0) -> tuple[r.PartitionState, ...]:
    count = draw(st.integers(1, 4))
    return tuple(draw(partitions(index)) for index in range(first, first + count))


endpoints = st.builds(r.Endpoint, st.sampled_from(["PLAINTEXT", "IN"]), st.text(max_size=5), st.integers(0, 65535))
config_changes = st.dictionaries(
    st.sampled_from(["retention.ms", "cleanup.policy"]), st.none() | st.text(max_size=5), min_size=1
)

records: st.SearchStrategy[Any] = st.one_of(
    st.builds(r.ClusterRecord, st.text(max_size=5)),
    st.builds(r.FeatureLevelRecord, names, st.integers(0, 3)),
    st.builds(
        r.RegisterBrokerRecord,
        small,
        ids,
        st.integers(0, 9),
        st.lists(endpoints, max_size=2).map(tuple),
        st.none() | names,
        st.booleans(),
        st.lists(ids, max_size=2).map(tuple),
        st.lists(st.builds(r.FeatureRange, names, small, small), max_size=2).map(tuple),
    ),
    st.builds(
        r.BrokerChangeRecord,
        small,
        st.integers(0, 9),
        st.none() | st.booleans(),
        st.none() | st.booleans(),
        st.none() | st.lists(ids, max_size=2).map(tuple),
        st.none() | st.lists(ids, max_size=2).map(tuple),
    ),
    st.builds(r.CordonRecord, small, st.integers(0, 9), st.lists(ids, max_size=2).map(tuple)),
    st.builds(r.UnregisterBrokerRecord, small, st.integers(0, 9)),
    st.builds(r.LastBrokerEpochRecord, st.integers(0, 9)),
    st.builds(r.TopicRecord, names, ids, partition_lists(), st.booleans()),
    st.builds(r.NewPartitionsRecord, ids, st.integers(0, 5).flatmap(lambda first: partition_lists(first))),
    st.builds(r.PartitionChangeRecord, ids, partition_lists()),
    st.builds(r.NewLeaderEpochsRecord, small),
    st.builds(r.RemoveTopicRecord, ids),
    st.builds(
        r.ConfigRecord,
        st.sampled_from([r.ResourceType.TOPIC, r.ResourceType.BROKER]),
        names | st.just(""),
        config_changes,
    ),
    st.builds(r.ProducerIdsRecord, small, st.integers(0, 9), st.integers(0, 2**40)),
)
