"""What brokers tell of cordoned directories (KIP-1066) is in the metadata, and decides where partitions go."""

from __future__ import annotations

from raftlog.metadata.cluster_commands import AlterReassignments, BrokerHeartbeat, Reassignment
from raftlog.metadata.commands import CreatePartitions, MorePartitions, NewTopic, RegisterBroker
from raftlog.metadata.snapshot import decode_snapshot, encode_snapshot
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from tests.metadata.world import World

ONE, TWO, FOREIGN = b"1" * 16, b"2" * 16, b"3" * 16
SECOND = BrokerId(2)


def world_of_two() -> World:
    """The second broker has two directories, of which one is cordoned."""
    world = World(1)
    registration = RegisterBroker(
        SECOND, bytes(16), (), directories=(ONE, TWO), cordoned_directories=(TWO, FOREIGN)
    )
    assert world.execute(registration).error is ErrorCode.NONE
    return world


def tell(world: World, *cordoned: bytes) -> int:
    """A heartbeat of the second broker; how many records it makes."""
    before = world.records
    answer = world.execute(
        BrokerHeartbeat(SECOND, world.image.brokers[SECOND].epoch, 0, cordoned_directories=cordoned)
    )
    assert answer.error is ErrorCode.NONE
    return world.records - before


def test_a_broker_tells_when_it_registers_and_with_each_heartbeat() -> None:
    world = world_of_two()
    known = world.image.brokers
    assert known[SECOND].cordoned_directories == (TWO,) and not known[SECOND].is_cordoned
    assert tell(world, TWO) == 0, "nothing is new"
    assert tell(world, TWO, ONE, FOREIGN) == 1
    assert world.image.brokers[SECOND].cordoned_directories == (ONE, TWO) and world.image.brokers[SECOND].is_cordoned
    again = decode_snapshot(encode_snapshot(world.image), world.image.version)
    assert again.brokers == world.image.brokers
    assert tell(world) == 1 and not world.image.brokers[SECOND].cordoned_directories


def test_what_a_cordoned_broker_has_stays_and_what_is_new_goes_elsewhere_unless_it_is_named() -> None:
    world = world_of_two()
    assert world.create(NewTopic("before", 2, 2)).error is ErrorCode.NONE
    before = world.image.topics["before"]
    tell(world, ONE, TWO)
    assert world.image.topics["before"] is before
    assert world.create(NewTopic("after", 4, 1)).error is ErrorCode.NONE
    assert {state.replicas for state in world.image.topics["after"].partitions} == {(1,)}
    refused = world.create(NewTopic("two", 1, 2))
    assert refused.error is ErrorCode.INVALID_REPLICATION_FACTOR and refused.message == (
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because"
        " only 1 broker(s) are registered or some brokers have all their log directories cordoned."
    )
    ((_, error, message),) = world.execute(CreatePartitions((MorePartitions("before", 3),))).results
    assert error is ErrorCode.INVALID_REPLICATION_FACTOR and message is not None
    assert message.startswith("The target replication factor of 2 cannot be reached because only 1 broker(s)")
    assert world.create(NewTopic("named", assignments=((0, (SECOND,)),))).error is ErrorCode.NONE
    moved = world.execute(AlterReassignments((Reassignment("after", 0, (SECOND,)),)))
    assert [each.error for each in moved.results] == [ErrorCode.NONE]
