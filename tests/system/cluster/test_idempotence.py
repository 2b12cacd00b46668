"""Idempotent producers when leaders die: a retry is answered with the offset of the first time, whoever leads."""

from __future__ import annotations

import pytest

from raftlog.testing import BrokerProcess
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.system.cluster.world import World
from tests.system.traps.raw import Closed, RawConnection
from tests.waiting import wait_until

VERSION = 9
RETRIABLE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS)


class IdempotentProducer:
    """Numbers its batches, and may send each as often as it likes."""

    def __init__(self, world: World, topic: str) -> None:
        self.world = world
        self.topic = topic
        with RawConnection(world.bootstrap.split(",")[0]) as connection:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            self.producer_id = connection.ask(request, 4).producer_id

    def send(self, sequence: int) -> tuple[ErrorCode, int]:
        """To the leader, once; error and base offset."""
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, b"%d" % sequence)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        partition = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=self.topic, partition_data=[partition])
        with RawConnection(self.world.leader(self.topic).address) as connection:
            answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), VERSION)
        (told,) = answer.responses[0].partition_responses
        return ErrorCode(told.error_code), told.base_offset

    def settle(self, sequence: int) -> tuple[ErrorCode, int]:
        """Sent until a leader has decided about it; its error and base offset."""
        told: list[tuple[ErrorCode, int]] = []

        def is_decided() -> bool:
            try:
                told.append(self.send(sequence))
            except (OSError, Closed):
                return False
            return told[-1][0] not in RETRIABLE

        wait_until(is_decided, f"a leader decides about sequence {sequence}")
        return told[-1]

    def deliver(self, sequence: int) -> int:
        """Until it is acknowledged; where it is."""
        error, offset = self.settle(sequence)
        assert error is ErrorCode.NONE, error
        return offset


@pytest.mark.long
def test_the_last_five_batches_are_known_to_each_leader_that_comes_after_a_kill(world: World, name: str) -> None:
    world.create(name)
    producer = IdempotentProducer(world, name)
    where = [producer.deliver(sequence) for sequence in range(7)]
    assert where == list(range(7))
    killed: list[BrokerProcess] = []
    for _ in range(2):
        leader = world.leader(name)
        leader.kill()
        killed.append(leader)
        wait_until(lambda: world.leader(name).pid != killed[-1].pid, "another broker leads")
        for sequence in range(2, 7):
            assert producer.deliver(sequence) == where[sequence], "a retry is answered with its first offset"
        assert producer.settle(0)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        leader.start()
        world.wait_until_in_sync(name)
    where.append(producer.deliver(7))
    assert where[7] == 7
    assert [message.value() for message in world.read(name)] == [b"%d" % sequence for sequence in range(8)]
    world.check_replicas_are_identical(name)
