"""What a client may rely on over a stop, and over a kill -9."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from raftlog.testing import Cluster, cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from tests.system.traps.batches import FETCH_VERSION, Producer, everything, plain_batch, read, send, session_request
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names, fetch, produce, sensible_request


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


@pytest.fixture(params=[False, True], ids=["SIGTERM", "kill -9"])
def kill(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def names(brokers: Cluster, request: pytest.FixtureRequest) -> Names:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return Names(name, create_topic(brokers.bootstrap_servers, name), f"{name}-group")


def connect(brokers: Cluster) -> RawConnection:
    return RawConnection(brokers.bootstrap_servers)


def restart(brokers: Cluster, kill: bool) -> None:
    brokers.brokers[0].restart(kill=kill)


def test_an_idempotent_producer_goes_on_as_if_nothing_had_happened(brokers: Cluster, names: Names, kill: bool) -> None:
    with connect(brokers) as connection:
        producer = Producer.register(connection)
        batches = [producer.batch(sequence) for sequence in range(7)]
        for batch in batches[:5]:
            send(connection, names, batch, acks=-1)
    restart(brokers, kill)
    with connect(brokers) as connection:
        again = [send(connection, names, batch) for batch in batches[:5]]
        assert [(answer.error_code, answer.base_offset) for answer in again] == [(0, offset) for offset in range(5)]
        assert send(connection, names, batches[6]).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(connection, names, batches[5]).base_offset == 5
        assert everything(connection, names) == [b"%d" % number for number in range(6)]
        assert Producer.register(connection).producer_id > producer.producer_id, "a producer id was given twice"


def test_what_was_acknowledged_is_there_and_what_was_sent_without_asking_is_whole(
    brokers: Cluster, names: Names, kill: bool
) -> None:
    with connect(brokers) as connection:
        for number in range(50):
            connection.send_request(produce(9, names, records=plain_batch(b"%d" % number), acks=1), 9)
        answered = []
        for _ in range(50):
            _, response = connection.receive(ApiKey.PRODUCE, 9)
            answered.append(response.responses[0].partition_responses[0].base_offset)
    assert answered == list(range(50))
    restart(brokers, kill)
    with connect(brokers) as connection:
        assert everything(connection, names) == [b"%d" % number for number in range(50)]


def test_topics_groups_and_ids_are_what_they_were(brokers: Cluster, names: Names, kill: bool) -> None:
    with connect(brokers) as connection:
        send(connection, names, plain_batch(b"x"))
        connection.ask(sensible_request(ApiKey.FIND_COORDINATOR, 0, names), 0)
        commit = connection.ask(sensible_request(ApiKey.OFFSET_COMMIT, 8, names), 8)
        assert commit.topics[0].partitions[0].error_code == ErrorCode.NONE
    restart(brokers, kill)
    with connect(brokers) as connection:
        assert read(connection, names, version=13).high_watermark == 1, "by the topic id from before"
        (group,) = connection.ask(sensible_request(ApiKey.OFFSET_FETCH, 8, names), 8).groups
        (partition,) = group.topics[0].partitions
        assert (group.error_code, partition.committed_offset, partition.metadata) == (0, 1, "here")


def test_a_fetch_session_from_before_is_unknown_and_not_somebody_else_s(
    brokers: Cluster, names: Names, kill: bool
) -> None:
    with connect(brokers) as connection:
        session = connection.ask(session_request(names), FETCH_VERSION).session_id
    restart(brokers, kill)
    with connect(brokers) as connection:
        request = session_request(names, session_id=session, epoch=1, partitions=False)
        assert connection.ask(request, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def count_frames(received: bytes) -> int:
    """How many whole replies there are in what was received."""
    position = count = 0
    while position + 4 <= len(received):
        (size,) = struct.unpack_from(">i", received, position)
        position += 4 + size
        count += position <= len(received)
    return count


def test_a_stop_answers_who_waits_and_loses_nothing_that_was_acknowledged_by_the_leader_alone(
    brokers: Cluster, names: Names
) -> None:
    with connect(brokers) as waiting, connect(brokers) as writing:
        waiting.send_request(fetch(FETCH_VERSION, names, max_wait_ms=60_000, min_bytes=1 << 20), FETCH_VERSION)
        for number in range(200):
            writing.send_request(produce(9, names, records=plain_batch(b"%d" % number), acks=1), 9)
        (first,) = struct.unpack_from(">i", writing.receive_frame())
        assert first == 1
        brokers.brokers[0].terminate()
        _, response = waiting.receive(ApiKey.FETCH, FETCH_VERSION)
        assert response.responses[0].partitions[0].records
        acknowledged = 1 + count_frames(writing.wait_until_closed())
    brokers.brokers[0].restart()
    with connect(brokers) as connection:
        stored = everything(connection, names)
    assert stored == [b"%d" % number for number in range(len(stored))]
    assert len(stored) >= acknowledged
