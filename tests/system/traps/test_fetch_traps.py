"""Traps in fetching and in asking for offsets: empty answers, limits, long polls, sessions, epochs."""

from __future__ import annotations

import time

import pytest

from raftlog.testing import cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import iterate_batches, parse_header
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from raftlog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from raftlog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conftest import Broker
from tests.system.traps.batches import (
    FETCH_VERSION,
    TIME_MS,
    everything,
    only_partition,
    plain_batch,
    read,
    send,
    session_request,
    values_of,
)
from tests.system.traps.conftest import MakeTopic, ours_only
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names, fetch, sensible_request

VERSIONS = range(4, 19)
LONG_MS = 30_000
FOR_EVER_MS = 2**31 - 1


@pytest.fixture
def connection(broker: Broker) -> RawConnection:
    return RawConnection(broker.bootstrap_servers)


# ── answers without records ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_records_has_zero_length_records_and_never_null(
    connection: RawConnection, names: Names, version: int
) -> None:
    empty = read(connection, names, version=version)
    assert (empty.error_code, empty.high_watermark, empty.records) == (ErrorCode.NONE, 0, b"")
    beyond = read(connection, names, version=version, offset=5)
    assert (beyond.error_code, beyond.records) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    nowhere = Names("not-there", b"\1" * 16, "")
    unknown = read(connection, nowhere, version=version)
    by_name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.error_code == (by_name if version < 13 else ErrorCode.UNKNOWN_TOPIC_ID)
    assert unknown.records == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_produced_is_fetched_in_every_version(connection: RawConnection, names: Names, version: int) -> None:
    send(connection, names, plain_batch(b"a", b"b"))
    partition = read(connection, names, version=version)
    assert values_of(partition.records) == [b"a", b"b"]
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert partition.aborted_transactions is None, "without read_committed there is no list"


def test_read_committed_is_answered_with_an_empty_list_of_aborted_transactions(
    connection: RawConnection, names: Names
) -> None:
    send(connection, names, plain_batch(b"a"))
    request = fetch(FETCH_VERSION, names)
    request.isolation_level = 1
    partition = only_partition(connection.ask(request, FETCH_VERSION))
    assert values_of(partition.records) == [b"a"] and partition.aborted_transactions == []


# ── limits and waiting ────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_larger_than_every_limit_is_still_sent_or_its_reader_would_never_go_on(
    connection: RawConnection, names: Names
) -> None:
    send(connection, names, plain_batch(b"x" * 10_000))
    send(connection, names, plain_batch(b"y"))
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        assert values_of(read(connection, names, **limits).records) == [b"x" * 10_000], "KIP-74"


def test_the_limit_of_bytes_holds_over_all_partitions(connection: RawConnection, make_topic: MakeTopic) -> None:
    names = make_topic(partitions=3)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1500, topics=[FetchTopic(topic=names.topic)])
    for index in range(3):
        request.topics[0].partitions.append(FetchPartition(partition=index, partition_max_bytes=1 << 20))
        send(connection, names, plain_batch(b"x" * 1000), index=index)
    response = connection.ask(request, FETCH_VERSION)
    sizes = [len(partition.records) for topic in response.responses for partition in topic.partitions]
    assert sum(sizes) <= 1500 and max(sizes) >= 1000


@pytest.mark.parametrize("level", [2, -1])
@pytest.mark.parametrize("version", [4, 6, 7, 12, 13, 17])
def test_an_isolation_level_that_does_not_exist_is_an_error_as_with_kafka(
    connection: RawConnection, names: Names, version: int, level: int
) -> None:
    send(connection, names, plain_batch(b"x"))
    request = fetch(version, names)
    request.isolation_level = level
    answer = connection.ask(request, version)
    # Kafka says it in both places from v7 to v12; clients look at the first.
    error = answer.error_code if version >= 7 else only_partition(answer).error_code
    assert error == ErrorCode.UNKNOWN_SERVER_ERROR
    if version >= 7:
        opened = connection.ask(session_request(names), FETCH_VERSION)
        again = session_request(names, session_id=opened.session_id, epoch=1, partitions=False)
        again.isolation_level = level
        assert connection.ask(again, FETCH_VERSION).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("level", [2, -1])
def test_offsets_for_an_isolation_level_that_does_not_exist_are_an_error(
    connection: RawConnection, names: Names, level: int
) -> None:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    topics = [ListOffsetsTopic(name=names.topic, partitions=asked)]
    (topic,) = connection.ask(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics), 7).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("limits", [{"max_bytes": -1}, {"partition_max_bytes": -1}])
def test_less_than_no_bytes_is_an_error_where_there_are_records_as_with_kafka(
    connection: RawConnection, names: Names, limits: dict[str, int]
) -> None:
    send(connection, names, plain_batch(b"x"))
    assert read(connection, names, **limits).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert read(connection, names, offset=1, **limits).error_code == ErrorCode.NONE
    assert read(connection, names, **dict.fromkeys(limits, 0)).records, "the first batch comes all the same"
    assert read(connection, names, min_bytes=-1, max_wait_ms=-1).records


def test_a_fetch_in_the_middle_of_a_batch_returns_the_whole_batch(connection: RawConnection, names: Names) -> None:
    send(connection, names, plain_batch(b"a", b"b", b"c"))
    send(connection, names, plain_batch(b"d"))
    partition = read(connection, names, offset=1)
    assert parse_header(partition.records or b"").base_offset == 0
    assert values_of(partition.records) == [b"a", b"b", b"c", b"d"]


def test_a_long_poll_ends_when_somebody_produces(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    began = time.monotonic()
    connection.send_request(fetch(FETCH_VERSION, names, max_wait_ms=LONG_MS), FETCH_VERSION)
    with RawConnection(broker.bootstrap_servers) as other:
        send(other, names, plain_batch(b"news"))
    _, response = connection.receive(ApiKey.FETCH, FETCH_VERSION)
    assert values_of(only_partition(response).records) == [b"news"]
    assert time.monotonic() - began < LONG_MS / 1000


def test_a_long_poll_waits_for_as_many_bytes_as_it_asked_for(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    connection.send_request(fetch(FETCH_VERSION, names, max_wait_ms=LONG_MS, min_bytes=250), FETCH_VERSION)
    with RawConnection(broker.bootstrap_servers) as other:
        for number in range(4):
            send(other, names, plain_batch(b"%d" % number))
    _, response = connection.receive(ApiKey.FETCH, FETCH_VERSION)
    records = only_partition(response).records
    assert records is not None and len(records) >= 250


def test_a_long_poll_ends_in_time_when_nobody_produces(connection: RawConnection, names: Names) -> None:
    began = time.monotonic()
    partition = read(connection, names, max_wait_ms=200)
    assert partition.records == b"" and partition.error_code == ErrorCode.NONE
    assert time.monotonic() - began >= 0.19


@ours_only
@pytest.mark.parametrize("behind", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID], ids=["known at once", "known later"])
def test_a_long_poll_gives_way_to_an_answer_that_waits_behind_it(
    connection: RawConnection, names: Names, behind: ApiKey
) -> None:
    send(connection, names, plain_batch(b"a"))
    waiting = fetch(FETCH_VERSION, names, max_wait_ms=FOR_EVER_MS, min_bytes=1 << 20)
    for _ in range(2):
        connection.send_request(waiting, FETCH_VERSION)
    connection.send_request(sensible_request(behind, 4, names), 4)
    for _ in range(2):
        partition = only_partition(connection.receive(ApiKey.FETCH, FETCH_VERSION)[1])
        assert values_of(partition.records) == [b"a"], "what there is, less than was asked for"
    assert connection.receive(behind, 4)


def test_a_long_poll_waits_on_while_what_waits_behind_it_is_another_long_poll(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    for _ in range(2):
        connection.send_request(fetch(FETCH_VERSION, names, max_wait_ms=FOR_EVER_MS), FETCH_VERSION)
    with RawConnection(broker.bootstrap_servers) as other:
        send(other, names, plain_batch(b"news"))
    found = [only_partition(connection.receive(ApiKey.FETCH, FETCH_VERSION)[1]) for _ in range(2)]
    assert [values_of(each.records) for each in found] == [[b"news"], [b"news"]]


def test_a_long_poll_with_an_error_in_it_does_not_wait(connection: RawConnection, names: Names) -> None:
    began = time.monotonic()
    assert read(connection, names, offset=99, max_wait_ms=LONG_MS).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - began < LONG_MS / 1000


# ── sessions (KIP-227) ────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_answers_about_what_changed_and_nothing_else(connection: RawConnection, names: Names) -> None:
    first = connection.ask(session_request(names), FETCH_VERSION)
    assert first.session_id != 0 and only_partition(first).records == b""
    quiet = session_request(names, session_id=first.session_id, epoch=1, partitions=False)
    assert connection.ask(quiet, FETCH_VERSION).responses == []
    send(connection, names, plain_batch(b"news"))
    news = session_request(names, session_id=first.session_id, epoch=2, partitions=False)
    answer = connection.ask(news, FETCH_VERSION)
    assert answer.session_id == first.session_id
    assert values_of(only_partition(answer).records) == [b"news"]


def quiet_polls(session_id: int, names: Names, epochs: range, wait_ms: int) -> list[FetchRequest]:
    """What an idle consumer sends, again and again."""
    polls = [session_request(names, session_id=session_id, epoch=epoch, partitions=False) for epoch in epochs]
    for poll in polls:
        poll.max_wait_ms = wait_ms
    return polls


@pytest.mark.parametrize("version", range(7, 19))
def test_an_idle_consumer_s_polls_are_all_answered_until_there_is_news(
    broker: Broker, connection: RawConnection, names: Names, version: int
) -> None:
    session_id = connection.ask(session_request(names, version=version), version).session_id
    for poll in quiet_polls(session_id, names, range(1, 5), 10):
        quiet = connection.ask(poll, version)
        assert (quiet.error_code, quiet.session_id, quiet.responses) == (ErrorCode.NONE, session_id, [])
    (last,) = quiet_polls(session_id, names, range(5, 6), LONG_MS)
    connection.send_request(last, version)
    with RawConnection(broker.bootstrap_servers) as other:
        send(other, names, plain_batch(b"news"))
    _, news = connection.receive(ApiKey.FETCH, version)
    assert values_of(only_partition(news).records) == [b"news"]


def test_polls_sent_without_waiting_for_the_last_are_answered_in_their_order(
    connection: RawConnection, names: Names
) -> None:
    session_id = connection.ask(session_request(names), FETCH_VERSION).session_id
    polls = quiet_polls(session_id, names, range(1, 6), 10)
    connection.ask(polls[0], FETCH_VERSION)
    sent = [connection.send_request(poll, FETCH_VERSION) for poll in polls[1:]]
    received = [connection.receive(ApiKey.FETCH, FETCH_VERSION) for _ in sent]
    assert [correlation_id for correlation_id, _ in received] == sent
    assert all(response.error_code == ErrorCode.NONE for _, response in received)


def test_an_idle_consumer_whose_session_was_closed_elsewhere_is_told(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    session_id = connection.ask(session_request(names), FETCH_VERSION).session_id
    first, second, third = quiet_polls(session_id, names, range(1, 4), 10)
    connection.ask(first, FETCH_VERSION)
    connection.ask(second, FETCH_VERSION)
    with RawConnection(broker.bootstrap_servers) as other:
        other.ask(session_request(names, session_id=session_id, epoch=-1), FETCH_VERSION)
    assert connection.ask(third, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_poll_repeated_with_an_old_epoch_is_refused(connection: RawConnection, names: Names) -> None:
    session_id = connection.ask(session_request(names), FETCH_VERSION).session_id
    first, second = quiet_polls(session_id, names, range(1, 3), 10)
    for poll in (first, second):
        connection.ask(poll, FETCH_VERSION)
    assert connection.ask(second, FETCH_VERSION).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@ours_only
def test_the_session_of_a_client_that_has_gone_makes_room_when_all_slots_are_in_use() -> None:
    with cluster(1, settings={"max.incremental.fetch.session.cache.slots": "2"}) as running:
        bootstrap = running.bootstrap_servers
        names = Names("sessions", create_topic(bootstrap, "sessions", partitions=1), "")
        gone, stays, third = (RawConnection(bootstrap) for _ in range(3))
        for client in (gone, stays):
            session_id = client.ask(session_request(names), FETCH_VERSION).session_id
            (poll,) = quiet_polls(session_id, names, range(1, 2), LONG_MS)
            client.send_request(poll, FETCH_VERSION)
        assert third.ask(session_request(names), FETCH_VERSION).session_id == 0
        gone.socket.close()
        # The broker hears of the end when it comes to it.
        assert any(third.ask(session_request(names), FETCH_VERSION).session_id for _ in range(10_000))
        send(third, names, plain_batch(b"news"))
        _, news = stays.receive(ApiKey.FETCH, FETCH_VERSION)
        assert news.session_id == session_id and values_of(only_partition(news).records) == [b"news"]


def test_a_client_that_comes_back_finds_its_session(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    session_id = connection.ask(session_request(names), FETCH_VERSION).session_id
    (parked,) = quiet_polls(session_id, names, range(1, 2), LONG_MS)
    connection.send_request(parked, FETCH_VERSION)
    connection.socket.close()
    with RawConnection(broker.bootstrap_servers) as again:
        send(again, names, plain_batch(b"news"))
        # The first poll may have come before the connection ended, or not.
        back = [again.ask(poll, FETCH_VERSION) for poll in quiet_polls(session_id, names, range(1, 3), 10)]
    assert ErrorCode.NONE in [answer.error_code for answer in back]


def test_a_session_forgets_a_partition_when_told_to(connection: RawConnection, names: Names) -> None:
    first = connection.ask(session_request(names), FETCH_VERSION)
    send(connection, names, plain_batch(b"x"))
    request = session_request(names, session_id=first.session_id, epoch=1, partitions=False)
    request.forgotten_topics_data = [ForgottenTopic(topic=names.topic, partitions=[0])]
    assert connection.ask(request, FETCH_VERSION).responses == []


def test_a_session_with_the_wrong_number_or_epoch_is_refused_so_that_the_client_begins_anew(
    connection: RawConnection, names: Names
) -> None:
    first = connection.ask(session_request(names), FETCH_VERSION)
    unknown = session_request(names, session_id=first.session_id ^ 1, epoch=1)
    assert connection.ask(unknown, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    skipped = session_request(names, session_id=first.session_id, epoch=5)
    assert connection.ask(skipped, FETCH_VERSION).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with_ids = session_request(names, session_id=first.session_id, epoch=1, version=13)
    assert connection.ask(with_ids, 13).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_that_is_closed_is_gone(connection: RawConnection, names: Names) -> None:
    first = connection.ask(session_request(names), FETCH_VERSION)
    last = connection.ask(session_request(names, session_id=first.session_id, epoch=-1), FETCH_VERSION)
    assert last.session_id == 0 and only_partition(last).error_code == ErrorCode.NONE
    late = session_request(names, session_id=first.session_id, epoch=1, partitions=False)
    assert connection.ask(late, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_hundred_partitions_are_fetched_with_one_request_each_time(
    connection: RawConnection, make_topic: MakeTopic
) -> None:
    names = make_topic(partitions=120)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(120)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, session_epoch=0, topics=[FetchTopic(topic=names.topic, partitions=partitions)]
    )
    first = connection.ask(request, FETCH_VERSION)
    assert [partition.partition_index for partition in first.responses[0].partitions] == list(range(120))
    send(connection, names, plain_batch(b"only here"))
    news = session_request(names, session_id=first.session_id, epoch=1, partitions=False)
    assert values_of(only_partition(connection.ask(news, FETCH_VERSION)).records) == [b"only here"]


def test_the_partitions_of_a_session_take_turns_when_an_answer_has_room_for_one(
    connection: RawConnection, make_topic: MakeTopic
) -> None:
    names = make_topic(partitions=3)
    for index in [0, 1, 2] * 3:
        send(connection, names, plain_batch(b"x" * 1000), index=index)
    partitions = [FetchPartition(partition=index, partition_max_bytes=1500) for index in range(3)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1500, session_epoch=0)
    served: list[int] = []
    for epoch in range(7):
        request.topics = [FetchTopic(topic=names.topic, partitions=partitions)]
        answer = connection.ask(request, FETCH_VERSION)
        (partition,) = [each for topic in answer.responses for each in topic.partitions if each.records]
        served.append(partition.partition_index)
        request.session_id, request.session_epoch = answer.session_id, epoch + 1
        at = served.count(served[-1])
        partitions = [FetchPartition(partition=served[-1], fetch_offset=at, partition_max_bytes=1500)]
    # Kafka begins with the same partition once more after the first request, which names all of them.
    assert sorted(served[1:4]) == sorted(served[4:7]) == [0, 1, 2]


# ── leader epochs (KIP-320) ───────────────────────────────────────────────────────────────────────────────────


def test_a_client_that_knows_another_leader_epoch_is_told(connection: RawConnection, names: Names) -> None:
    send(connection, names, plain_batch(b"x"))
    request = fetch(FETCH_VERSION, names)
    request.topics[0].partitions[0].current_leader_epoch = 7
    assert only_partition(connection.ask(request, FETCH_VERSION)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    request.topics[0].partitions[0].current_leader_epoch = 0
    assert only_partition(connection.ask(request, FETCH_VERSION)).error_code == ErrorCode.NONE


def test_the_end_of_an_epoch_is_told_and_an_epoch_that_never_was_is_not_made_up(
    connection: RawConnection, names: Names
) -> None:
    send(connection, names, plain_batch(b"a", b"b"))

    def end_of(epoch: int) -> tuple[int, int]:
        partitions = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch)]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=names.topic, partitions=partitions)])
        (partition,) = connection.ask(request, 4).topics[0].partitions
        return partition.leader_epoch, partition.end_offset

    assert end_of(0) == (0, 2)
    assert end_of(9) == (-1, -1)


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────


def offset_of(
    connection: RawConnection, names: Names, timestamp: int, version: int = 11
) -> tuple[ErrorCode, int, int]:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=names.topic, partitions=partitions)])
    (partition,) = connection.ask(request, version).topics[0].partitions
    return ErrorCode(partition.error_code), partition.offset, partition.timestamp


def test_special_timestamps_and_times_find_their_offsets(connection: RawConnection, names: Names) -> None:
    assert offset_of(connection, names, -1) == (ErrorCode.NONE, 0, -1)
    assert offset_of(connection, names, -3) == (ErrorCode.NONE, -1, -1)
    assert offset_of(connection, names, TIME_MS) == (ErrorCode.NONE, -1, -1)
    for step in (0, 100, 50):
        send(connection, names, plain_batch(b"x", b"y", time_ms=TIME_MS + step))
    assert offset_of(connection, names, -1) == (ErrorCode.NONE, 6, -1)
    assert offset_of(connection, names, -2) == (ErrorCode.NONE, 0, -1)
    assert offset_of(connection, names, -3) == (ErrorCode.NONE, 2, TIME_MS + 100)
    assert offset_of(connection, names, TIME_MS + 1) == (ErrorCode.NONE, 2, TIME_MS + 100)
    assert offset_of(connection, names, TIME_MS + 101) == (ErrorCode.NONE, -1, -1)


def test_a_special_timestamp_of_a_later_version_is_refused_before_it(connection: RawConnection, names: Names) -> None:
    assert offset_of(connection, names, -3, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION
    # What no version knows must not pass for a time at which there was no record.
    for timestamp in (-7, -99, -(2**63)):
        assert offset_of(connection, names, timestamp)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_deleted_records_are_out_of_range_and_the_start_moves(connection: RawConnection, names: Names) -> None:
    for number in range(4):
        send(connection, names, plain_batch(b"%d" % number))

    def delete(offset: int) -> tuple[int, int]:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=names.topic, partitions=partitions)])
        (partition,) = connection.ask(request, 2).topics[0].partitions
        return partition.error_code, partition.low_watermark

    assert delete(3) == (ErrorCode.NONE, 3)
    assert read(connection, names, offset=1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(read(connection, names, offset=3).records) == [b"3"]
    assert offset_of(connection, names, -2) == (ErrorCode.NONE, 3, -1)
    assert delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (ErrorCode.NONE, 4), "-1 is the high watermark"
    assert delete(1) == (ErrorCode.NONE, 4), "the start never moves back"


def test_offsets_have_no_gaps_and_batches_follow_each_other(connection: RawConnection, names: Names) -> None:
    for count in (1, 3, 2):
        send(connection, names, plain_batch(*[b"v"] * count))
    headers = [header for _, header in iterate_batches(memoryview(read(connection, names).records or b""))]
    assert [(header.base_offset, header.next_offset) for header in headers] == [(0, 1), (1, 4), (4, 6)]
    assert len(everything(connection, names)) == 6
