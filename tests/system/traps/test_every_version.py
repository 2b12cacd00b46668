"""Every API that the broker advertises, in every version: a sensible request gets a reply that three codecs read."""

from __future__ import annotations

import os
from typing import Any

import pytest
from kio.serial import entity_reader

from raftlog.broker.api.handlers import served_apis
from raftlog.wire.apis import Api, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raftlog.wire.messages.produce import ProduceRequest
from raftlog.wire.schema import Message, Struct
from tests.conftest import Broker
from tests.raftlog.wire.messages.test_messages_against_kafka_python import from_theirs, their_class
from tests.raftlog.wire.messages.test_messages_against_kio import from_kio, kio_class
from tests.system.traps.conftest import ours_only
from tests.system.traps.raw import RawConnection, create_topic, framed
from tests.system.traps.sensible import BUILDERS, Names, produce, sensible_request
from tests.system.traps.sensible_cluster import CLUSTER_ERRORS
from tests.system.traps.sensible_transactions import TRANSACTION_ERRORS, TRANSACTION_KEY, TRANSACTIONAL_ID

VERSIONS = [(api, version) for api in served_apis() for version in range(api.min_version, api.max_version + 1)]
UNKNOWN_TAGS = b"\x02" + b"\x63\x03abc" + b"\xff\x7f\x00"  # two: number 99 with three bytes, number 16383 with none

# What the sensible request is answered with where it is not NONE. Everything else is a surprise.
EXPECTED_ERRORS: dict[ApiKey, set[ErrorCode]] = {
    ApiKey.JOIN_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.HEARTBEAT: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.SYNC_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.LEAVE_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID},
    ApiKey.CREATE_TOPICS: {ErrorCode.TOPIC_ALREADY_EXISTS},
    ApiKey.DELETE_TOPICS: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ApiKey.DELETE_GROUPS: {ErrorCode.GROUP_ID_NOT_FOUND},
    **CLUSTER_ERRORS,
    **TRANSACTION_ERRORS,
}


def case_name(case: object) -> str:
    return case.name if isinstance(case, Api) else f"v{case}"


@pytest.fixture(scope="module")
def names(broker: Broker) -> Names:
    name = f"every-version-{os.getpid()}"
    made = Names(name, create_topic(broker.bootstrap_servers, name), f"{name}-group")
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.ask(sensible_request(ApiKey.FIND_COORDINATOR, 0, made), 0)
        connection.ask(sensible_request(ApiKey.OFFSET_COMMIT, 8, made), 8)
        connection.ask(FindCoordinatorRequest(key=TRANSACTIONAL_ID, key_type=TRANSACTION_KEY), 1)
        connection.ask(produce(9, made), 9)
    return made


@pytest.fixture(scope="module")
def advertised(broker: Broker) -> dict[int, tuple[int, int]]:
    with RawConnection(broker.bootstrap_servers) as connection:
        response = connection.ask(ApiVersionsRequest(), 0)
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def error_codes(struct: Struct) -> set[ErrorCode]:
    """All error codes in a message, at any depth."""
    found: set[ErrorCode] = set()
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        if field.name.endswith("error_code"):
            found.add(ErrorCode(value))
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                found |= error_codes(inner)
    return found


def reply_body(connection: RawConnection, frame: bytes, api: Api, version: int) -> bytes:
    """The body of the reply to `frame`, whose correlation id is 7."""
    connection.send(framed(frame))
    reply = connection.receive_frame()
    correlation_id, offset = parse_response_header(api.key, version, reply)
    assert correlation_id == 7
    return reply[offset:]


def plain(value: Any) -> Any:
    """The message with its byte fields as bytes, for comparison."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, Struct):
        return type(value)(**{field.name: plain(getattr(value, field.name)) for field in value.__fields__})
    return value


@ours_only
def test_exactly_the_apis_with_a_handler_are_advertised_at_kafka_s_versions(
    advertised: dict[int, tuple[int, int]],
) -> None:
    assert advertised == {int(api.key): (api.advertised_min, api.max_version) for api in served_apis()}
    assert set(advertised) == {int(key) for key in BUILDERS}, "an API without a sensible request here"


@pytest.mark.parametrize("api, version", VERSIONS, ids=case_name)
def test_a_sensible_request_gets_a_reply_that_every_codec_reads(
    broker: Broker, names: Names, api: Api, version: int
) -> None:
    request = sensible_request(api.key, version, names)
    header = encode_request_header(api.key, version, 7, "every-version")
    with RawConnection(broker.bootstrap_servers) as connection:
        body = reply_body(connection, encode(request, version, header), api, version)
    ours = decode(api.response, version, body)
    assert error_codes(ours) - {ErrorCode.NONE} <= EXPECTED_ERRORS.get(api.key, set()), ours
    theirs = kio_class(api.response, version)
    if theirs is not None:
        entity, end = entity_reader(theirs)(memoryview(body), 0)
        assert end == len(body), "kio reads less than was sent"
        assert from_kio(entity, api.response, version) == plain(ours)
    other = their_class(api.response)
    if other is not None:
        assert from_theirs(other.decode(body, version=version), api.response, version) == plain(ours)


@pytest.mark.parametrize("api, version", VERSIONS, ids=case_name)
def test_a_request_of_nothing_but_defaults_is_answered(broker: Broker, api: Api, version: int) -> None:
    request = api.request()
    if isinstance(request, ProduceRequest):
        request.acks = 1  # or there would be no answer
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.ask(request, version, client_id=None)


@pytest.mark.parametrize(
    "api, version", [(api, version) for api, version in VERSIONS if api.is_flexible(version)], ids=case_name
)
def test_tagged_fields_that_we_do_not_know_are_skipped(
    broker: Broker, names: Names, api: Api, version: int
) -> None:
    header = encode_request_header(api.key, version, 7, "tags")
    body = encode(sensible_request(api.key, version, names), version)
    assert header.endswith(b"\0") and body.endswith(b"\0"), "both end in an empty section of tagged fields"
    frame = header[:-1] + UNKNOWN_TAGS + body[:-1] + UNKNOWN_TAGS
    with RawConnection(broker.bootstrap_servers) as connection:
        response: Message = decode(api.response, version, reply_body(connection, frame, api, version))
    assert error_codes(response) - {ErrorCode.NONE} <= EXPECTED_ERRORS.get(api.key, set()), response


@pytest.mark.parametrize("api", served_apis(), ids=case_name)
def test_a_version_that_is_too_new_ends_the_connection_except_for_api_versions(
    broker: Broker, names: Names, api: Api
) -> None:
    version = api.max_version + 1
    body = encode(sensible_request(api.key, api.max_version, names), api.max_version)
    header = encode_request_header(api.key, version, 7, "too new")
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(framed(header + body))
        if api.key == ApiKey.API_VERSIONS:
            response = decode(api.response, 0, connection.receive_frame()[4:])
            assert error_codes(response) == {ErrorCode.UNSUPPORTED_VERSION}
        else:
            assert connection.wait_until_closed() == b""
