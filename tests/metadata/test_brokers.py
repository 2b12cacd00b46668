"""Registration, epochs and blocks of producer ids."""

from __future__ import annotations

from raftlog.metadata.cluster_commands import AssignDirectories, DirectoryAssignment
from raftlog.metadata.commands import (
    AllocateProducerIds,
    InitializeCluster,
    NewTopic,
    RegisterBroker,
)
from raftlog.metadata.configs import MIN_ISR
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.records import NO_LEADER, ConfigRecord, ResourceType
from raftlog.wire.errors import ErrorCode
from tests.metadata.world import World


def test_the_first_cluster_id_stays() -> None:
    world = World()
    assert world.execute(InitializeCluster("first", {"raftlog.metadata.version": 1})).cluster_id == "first"
    assert world.execute(InitializeCluster("second", {})).cluster_id == "first"
    assert world.image.cluster_id == "first"
    assert world.image.features == {"raftlog.metadata.version": 1}


def test_min_insync_replicas_is_one_for_all_brokers_from_the_beginning() -> None:
    world = World(min_insync_replicas="2")
    # A cluster of an earlier version: each broker had its own.
    delta = MetadataDelta(world.image)
    delta.replay(ConfigRecord(ResourceType.BROKER, "7", {MIN_ISR: "3"}))
    world.image = delta.apply(1)
    for _ in range(2):
        world.execute(InitializeCluster("c", {}))
        assert world.image.configs == {(ResourceType.BROKER, ""): {MIN_ISR: "2"}}


def test_every_registration_has_a_higher_epoch_and_a_repetition_has_the_same() -> None:
    world = World(brokers=2)
    register = RegisterBroker(1, b"n" * 16, ())
    first = world.execute(register)
    assert first.broker_epoch == 3
    assert world.execute(register).broker_epoch == 3
    assert world.register(2) == 4


def test_a_broker_of_another_cluster_is_refused() -> None:
    world = World()
    world.execute(InitializeCluster("ours", {}))
    answer = world.execute(RegisterBroker(2, b"n" * 16, (), cluster_id="theirs"))
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer.message and "theirs" in answer.message and "ours" in answer.message


def test_a_second_broker_with_an_id_that_is_in_use_is_refused() -> None:
    world = World()
    answer = world.execute(RegisterBroker(1, b"n" * 16, (), previous_is_alive=True))
    assert answer.error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_broker_that_died_gets_new_leader_epochs_for_what_it_leads() -> None:
    world = World(brokers=2)
    world.create(NewTopic("t", assignments=((0, (1, 2)), (1, (2, 1)))))
    world.register(1)
    assert [p.leader_epoch for p in world.image.topics["t"].partitions] == [1, 0]
    assert [p.partition_epoch for p in world.image.topics["t"].partitions] == [1, 0]


def test_a_broker_that_was_shut_down_cleanly_keeps_its_leader_epochs() -> None:
    world = World()
    world.create("t")
    epoch = world.image.brokers[1].epoch
    world.execute(RegisterBroker(1, b"n" * 16, (), previous_broker_epoch=epoch))
    assert world.image.topics["t"].partitions[0].leader_epoch == 0


def test_producer_ids_are_given_out_once() -> None:
    world = World(brokers=2)
    blocks = [world.execute(AllocateProducerIds(1 + n % 2, 1 + n % 2)) for n in range(4)]
    ids = [block.first + n for block in blocks for n in range(block.size)]
    assert len(set(ids)) == len(ids) == 4000


def test_a_broker_of_an_old_epoch_gets_no_producer_ids() -> None:
    world = World()
    old = world.image.brokers[1].epoch
    world.register(1)
    assert world.execute(AllocateProducerIds(1, old)).error is ErrorCode.STALE_BROKER_EPOCH
    assert world.execute(AllocateProducerIds(9, 1)).error is ErrorCode.STALE_BROKER_EPOCH


ONE, TWO, NEW = (name.ljust(16).encode() for name in ("one", "two", "new"))


def start_alone(world: World, *directories: bytes) -> list[int]:
    """A broker alone registers with these data directories; who leads the partitions of `t` then."""
    incarnation = world.image.last_broker_epoch.to_bytes(16, "big")
    assert world.execute(RegisterBroker(1, incarnation, (), directories=directories)).error is ErrorCode.NONE
    return [partition.leader for partition in world.image.topics["t"].partitions]


def test_what_lies_in_a_missing_directory_of_a_broker_alone_has_no_leader_until_it_is_back() -> None:
    """It was made anew and empty in another directory, and both were found at the next start."""
    world = World()
    world.create(NewTopic("t", num_partitions=3))
    assert start_alone(world, ONE, TWO) == [1, 1, 1], "nobody knew of directories before"
    topic = world.image.topics["t"].topic_id
    lies = tuple(DirectoryAssignment(topic, index, directory) for index, directory in enumerate((ONE, TWO)))
    world.execute(AssignDirectories(1, world.image.brokers[1].epoch, lies))
    for present in ((ONE,), (ONE,), (ONE, NEW)):
        assert start_alone(world, *present) == [1, NO_LEADER, 1], "the last one was never used and lies nowhere"
    assert start_alone(world, ONE, TWO) == [1, 1, 1]


def test_a_broker_alone_whose_only_directory_was_exchanged_leads_nothing_until_it_is_back() -> None:
    world = World()
    world.create(NewTopic("t", num_partitions=2))
    assert start_alone(world, ONE) == [1, 1]
    assert start_alone(world, NEW) == [NO_LEADER, NO_LEADER]
    assert start_alone(world, ONE) == [1, 1]
