"""Traps before any data flows: versions, headers, order of replies, who may talk to whom.

Each was a bug of some broker that speaks Kafka's protocol, or is easy to get wrong.
"""

from __future__ import annotations

import struct

import pytest

from raftlog.broker.api.handlers import HANDLERS
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.conftest import Broker
from tests.system.traps.conftest import MakeTopic, ours_only
from tests.system.traps.raw import RawConnection, framed, request_frame, serves, wait_until_led
from tests.system.traps.sensible import Names, fetch, join_group, produce, sensible_request

PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 9, 12, 12
CLIENT = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.fixture
def connection(broker: Broker) -> RawConnection:
    return RawConnection(broker.bootstrap_servers)


def test_produce_is_advertised_from_version_0_or_old_librdkafka_stops_compressing(connection: RawConnection) -> None:
    for version in range(5):
        ranges = {api.api_key: api for api in connection.ask(CLIENT, version).api_keys}
        assert ranges[ApiKey.PRODUCE].min_version == 0, "KAFKA-18659"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_produce_versions_that_are_advertised_and_not_served_end_the_connection(
    broker: Broker, connection: RawConnection, version: int
) -> None:
    connection.send(framed(struct.pack(">hhih", ApiKey.PRODUCE, version, 1, -1) + struct.pack(">hii", 1, 1000, 0)))
    assert connection.wait_until_closed() == b""
    assert serves(broker.bootstrap_servers)


@pytest.mark.parametrize("version", [5, 6, 127, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_the_form_of_v0(
    connection: RawConnection, version: int
) -> None:
    connection.send(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 99, 3) + b"new" + b"\x00what is this"))
    frame = connection.receive_frame()
    assert struct.unpack_from(">i", frame) == (99,)
    response = decode(ApiVersionsResponse, 0, frame[4:])
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = [api for api in response.api_keys if api.api_key == ApiKey.API_VERSIONS]
    assert (own.min_version, own.max_version) == (0, 4), "the client cannot know what to ask next"
    assert connection.ask(CLIENT, 4).error_code == ErrorCode.NONE, "the connection did not survive KIP-511"


@pytest.mark.parametrize("version", [3, 4])
def test_the_header_of_an_api_versions_reply_has_no_tagged_fields(connection: RawConnection, version: int) -> None:
    connection.send(request_frame(CLIENT, version, 5))
    frame = connection.receive_frame()
    assert struct.unpack_from(">ih", frame) == (5, ErrorCode.NONE), "the error code follows the correlation id at once"
    decode(ApiVersionsResponse, version, frame[4:])


def test_a_flexible_reply_has_tagged_fields_in_its_header(connection: RawConnection) -> None:
    connection.send(request_frame(MetadataRequest(topics=[]), METADATA_VERSION, 5))
    frame = connection.receive_frame()
    assert frame[4] == 0
    decode(MetadataResponse, METADATA_VERSION, frame[5:])


@pytest.mark.parametrize("name", ["", "-dash", "a b", "ünicode"])
def test_a_client_software_name_that_kip_511_does_not_allow_is_refused_in_words(
    connection: RawConnection, name: str
) -> None:
    response = connection.ask(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("client_id", [None, "", "x" * 30_000, "тест", "a\nb"])
def test_any_client_id_will_do_and_the_header_keeps_it_uncompact(
    connection: RawConnection, client_id: str | None
) -> None:
    assert connection.ask(CLIENT, 3, client_id=client_id).error_code == ErrorCode.NONE
    assert connection.ask(MetadataRequest(topics=[]), METADATA_VERSION, client_id=client_id).brokers


def test_replies_come_in_the_order_of_the_requests_whatever_they_wait_for(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    connection.ask(sensible_request(ApiKey.FIND_COORDINATOR, 0, names), 0)
    ids = [
        connection.send_request(fetch(FETCH_VERSION, names, max_wait_ms=300), FETCH_VERSION),
        connection.send_request(CLIENT, 3),
        connection.send_request(sensible_request(ApiKey.INIT_PRODUCER_ID, 4, names), 4),
        connection.send_request(MetadataRequest(topics=[]), METADATA_VERSION),
    ]
    received = [struct.unpack_from(">i", connection.receive_frame())[0] for _ in ids]
    assert received == ids


def test_correlation_ids_come_back_whatever_they_are(connection: RawConnection) -> None:
    for correlation_id in (0, -1, 2**31 - 1, -(2**31)):
        connection.send(request_frame(CLIENT, 0, correlation_id))
        assert struct.unpack_from(">i", connection.receive_frame()) == (correlation_id,)


def test_metadata_names_the_address_that_the_client_connected_to(
    broker: Broker, connection: RawConnection
) -> None:
    response = connection.ask(MetadataRequest(topics=[]), METADATA_VERSION)
    assert [f"{node.host}:{node.port}" for node in response.brokers] == [broker.bootstrap_servers]
    assert response.controller_id == response.brokers[0].node_id


def test_no_topics_means_all_in_metadata_v0_and_none_from_v1_on(connection: RawConnection, names: Names) -> None:
    everything = {topic.name for topic in connection.ask(MetadataRequest(topics=[]), 0).topics}
    assert names.topic in everything
    for version in (1, 4, 9, 12, 13):
        assert connection.ask(MetadataRequest(topics=[]), version).topics == []
        assert names.topic in {topic.name for topic in connection.ask(MetadataRequest(topics=None), version).topics}


def test_metadata_creates_a_topic_only_where_both_sides_allow_it(connection: RawConnection, names: Names) -> None:
    wanted = [MetadataRequestTopic(name=f"{names.topic}-created")]
    for _ in range(2):
        response = connection.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION)
        assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    connection.ask(MetadataRequest(topics=wanted), METADATA_VERSION)
    wait_until_led(connection, wanted[0].name or "", 1)
    response = connection.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), METADATA_VERSION)
    assert response.topics[0].partitions[0].leader_id >= 0


def test_a_topic_is_known_by_its_id_and_an_unknown_id_is_said_to_be_unknown(
    connection: RawConnection, names: Names
) -> None:
    wanted = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in (names.topic_id, b"\7" * 16)]
    topics = connection.ask(MetadataRequest(topics=wanted), METADATA_VERSION).topics
    found = {topic.topic_id: (topic.name, topic.error_code) for topic in topics}
    assert found == {names.topic_id: (names.topic, 0), b"\7" * 16: (None, ErrorCode.UNKNOWN_TOPIC_ID)}


def test_a_coordinator_is_found_before_any_group_topic_exists_and_each_key_is_answered(
    broker: Broker, connection: RawConnection, names: Names
) -> None:
    one = connection.ask(FindCoordinatorRequest(key=names.group), 2)
    assert (one.error_code, f"{one.host}:{one.port}") == (ErrorCode.NONE, broker.bootstrap_servers)
    several = connection.ask(FindCoordinatorRequest(coordinator_keys=[names.group, "another"]), 6)
    assert [(found.key, found.error_code) for found in several.coordinators] == [(names.group, 0), ("another", 0)]


def test_a_member_is_given_an_id_before_it_may_join_and_is_not_counted_until_then(
    connection: RawConnection, names: Names
) -> None:
    connection.ask(sensible_request(ApiKey.FIND_COORDINATOR, 0, names), 0)
    first = connection.ask(join_group(names), 4)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED and first.member_id, "KIP-394"
    joined = connection.ask(join_group(names, first.member_id), 4)
    assert (joined.error_code, joined.leader, joined.generation_id) == (ErrorCode.NONE, first.member_id, 1)
    assert [member.member_id for member in joined.members] == [first.member_id]
    stale = HeartbeatRequest(group_id=names.group, generation_id=0, member_id=first.member_id)
    assert connection.ask(stale, 3).error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_request_in_small_pieces_and_several_in_one_piece_are_the_same_to_the_broker(
    connection: RawConnection, make_topic: MakeTopic
) -> None:
    names = make_topic()
    frames = [request_frame(produce(PRODUCE_VERSION, names), PRODUCE_VERSION, number) for number in range(3)]
    for byte in frames[0]:
        connection.send(bytes([byte]))
    connection.send(frames[1] + frames[2])
    offsets = []
    for number in range(3):
        correlation_id, response = connection.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
        assert correlation_id == number
        offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == [0, 1, 2]


def test_what_a_client_asked_before_it_stops_sending_is_still_answered(connection: RawConnection) -> None:
    connection.send(request_frame(CLIENT, 0, 1) + request_frame(CLIENT, 0, 2))
    connection.end_sending()
    received = connection.wait_until_closed()
    (size,) = struct.unpack_from(">i", received)
    assert struct.unpack_from(">i", received, 4) == (1,)
    assert struct.unpack_from(">i", received, 8 + size) == (2,)


@ours_only
def test_an_api_that_kafka_has_and_we_do_not_serve_ends_the_connection(
    broker: Broker, connection: RawConnection
) -> None:
    key = next(key for key in ApiKey if key not in HANDLERS)
    header = encode_request_header(key, 0, 1, "raw")
    connection.send(framed(header + encode(MetadataRequest(topics=[]), METADATA_VERSION)))
    assert connection.wait_until_closed() == b""
    assert serves(broker.bootstrap_servers)
