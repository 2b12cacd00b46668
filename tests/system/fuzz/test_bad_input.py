"""What is no request at all, and clients that do not behave: each loses its connection with one line in the log, or
nothing happens; nobody else notices.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from raftlog.broker.api.handlers import served_apis
from raftlog.broker.core.connection.limits import ARRIVING_BYTES_MAX
from raftlog.broker.server.limits import DECODED_REQUEST_BYTES_MAX
from raftlog.testing import Cluster, cluster
from raftlog.wire.apis import Api, ApiKey
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.codec import encode
from raftlog.wire.headers import encode_request_header
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.system.fuzz.watch import MIB, Watch, resident_bytes, watched
from tests.system.traps.batches import plain_batch, send
from tests.system.traps.raw import Closed, RawConnection, create_topic, framed, request_frame
from tests.system.traps.sensible import Names, fetch, produce, sensible_request

HUGE = struct.pack(">i", 2**31 - 1)
HUGE_VARINT = b"\xff\xff\xff\xff\x07"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONNECTIONS = 1000
CONNECTION_BYTES_MAX = 24 * 1024
CLIENT_RECEIVE_BYTES = 16 * 1024


def case_name(case: object) -> str:
    return case.name if isinstance(case, Api) else f"v{case}"


def header(api: Api, version: int) -> bytes:
    return encode_request_header(api.key, version, 1, "bad")


def expect_closed(watch: Watch, data: bytes, *, sent_before: int = 0) -> None:
    """These bytes cost the connection, and the log has one line about it."""
    with RawConnection(watch.address) as connection:
        connection.send(data)
        connection.wait_until_closed()
    watch.log.wait_for_closed_lines(sent_before + 1)


# ── frames ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_random_bytes_end_their_connection_and_no_other(watch: Watch) -> None:
    rng = random.Random(1)
    for number in range(60):
        # Above every limit of a frame, or the broker would wait for the rest.
        junk = struct.pack(">I", rng.randrange(0x08000000, 0x1_0000_0000)) + rng.randbytes(rng.randrange(500))
        expect_closed(watch, junk, sent_before=number)


@pytest.mark.parametrize("other_protocol", [TLS_HELLO, HTTP], ids=["TLS", "HTTP"])
def test_other_protocols_are_turned_away_with_a_hint(watch: Watch, other_protocol: bytes) -> None:
    expect_closed(watch, other_protocol)
    assert any("TLS" in line for line in watch.process.log().splitlines()[-3:])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 1, 7, 100 * 2**20 + 1, 2**31 - 1])
def test_a_length_that_no_request_has_ends_the_connection_at_once(watch: Watch, length: int) -> None:
    expect_closed(watch, struct.pack(">i", length))


@pytest.mark.parametrize("api", served_apis(), ids=case_name)
def test_a_request_that_ends_in_the_middle_of_a_field_is_one_closed_connection(
    watch: Watch, names: Names, api: Api
) -> None:
    closed = 0
    for version in {api.min_version, api.max_version}:
        body = encode(sensible_request(api.key, version, names), version)
        if not body.strip(b"\0"):
            continue  # nothing in it that could be cut and missed
        expect_closed(watch, framed(header(api, version) + body[: len(body) // 2]), sent_before=closed)
        closed += 1


@pytest.mark.parametrize("api", served_apis(), ids=case_name)
def test_an_api_key_with_nothing_behind_it_is_one_closed_connection(watch: Watch, api: Api) -> None:
    expect_closed(watch, framed(struct.pack(">hhi", api.key, api.min_version, 1)))


@pytest.mark.parametrize("key", [4, 5, 6, 7, 17, 36, 52, 93, 1000, -1, 32767])
def test_an_unknown_api_is_one_closed_connection(watch: Watch, key: int) -> None:
    expect_closed(watch, framed(struct.pack(">hhihx", key, 0, 1, -1)))


@pytest.mark.parametrize("length", [5, 32767])
def test_a_client_id_that_is_longer_than_its_request_is_one_closed_connection(watch: Watch, length: int) -> None:
    expect_closed(watch, framed(struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, length) + b"abc"))


@pytest.mark.parametrize("api_key, version, prefix", [
    (ApiKey.PRODUCE, 8, struct.pack(">hhi", -1, 1, 1000)),
    (ApiKey.PRODUCE, 9, b"\0" + struct.pack(">hi", 1, 1000)),
    (ApiKey.FETCH, 11, struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)),
    (ApiKey.METADATA, 4, b""),
    (ApiKey.METADATA, 12, b""),
    (ApiKey.JOIN_GROUP, 5, struct.pack(">h1siih2sh1s", 1, b"g", 1000, 1000, 0, b"\xff\xff", 1, b"t")),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, b""),
    (ApiKey.FIND_COORDINATOR, 4, b"\0"),
])  # fmt: skip
def test_an_array_that_claims_two_thousand_million_elements_costs_nothing(
    watch: Watch, api_key: ApiKey, version: int, prefix: bytes
) -> None:
    before = resident_bytes(watch.process.pid)
    flexible = next(api for api in served_apis() if api.key == api_key).is_flexible(version)
    count = HUGE_VARINT if flexible else HUGE
    expect_closed(watch, framed(encode_request_header(api_key, version, 1, "bad") + prefix + count + bytes(20)))
    assert resident_bytes(watch.process.pid) - before < 20 * MIB


def test_a_topic_name_that_is_no_utf_8_is_one_closed_connection(watch: Watch, names: Names) -> None:
    body = encode(produce(8, names), 8).replace(names.topic.encode(), b"\xff" * len(names.topic))
    expect_closed(watch, framed(encode_request_header(ApiKey.PRODUCE, 8, 1, "bad") + body))


def test_only_produce_may_be_large(watch: Watch) -> None:
    body = struct.pack(">i", DECODED_REQUEST_BYTES_MAX // 2) + bytes(DECODED_REQUEST_BYTES_MAX + 1)
    expect_closed(watch, framed(encode_request_header(ApiKey.METADATA, 4, 1, "bad") + body))


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────


def test_clients_that_go_away_are_not_worth_a_line(watch: Watch) -> None:
    def nothing(connection: RawConnection) -> None: ...

    def half(connection: RawConnection) -> None:
        connection.send(request_frame(ApiVersionsRequest(), 0)[:7])

    def large_half(connection: RawConnection) -> None:
        connection.send(struct.pack(">i", 50 * MIB) + bytes(100_000))

    def reset(connection: RawConnection) -> None:
        half(connection)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def unread(connection: RawConnection) -> None:
        connection.send(request_frame(ApiVersionsRequest(), 0) * 20)

    leave: list[Callable[[RawConnection], None]] = [nothing, half, large_half, reset, unread]
    for leaver in leave * 10:
        with RawConnection(watch.address) as connection:
            leaver(connection)
    watch.wait_for_rounds()
    watch.log.wait_for_closed_lines(0)


def test_a_client_that_goes_away_while_its_fetch_waits_leaves_nothing_behind(watch: Watch, names: Names) -> None:
    for _ in range(50):
        with RawConnection(watch.address) as connection:
            for _ in range(20):
                connection.send_request(fetch(12, names, max_wait_ms=2**31 - 1), 12)
    with RawConnection(watch.address) as connection:
        assert send(connection, names, plain_batch(b"x")).error_code == 0
    watch.wait_for_rounds()


def test_slow_senders_keep_nobody_waiting(watch: Watch) -> None:
    frame = request_frame(ApiVersionsRequest(), 0, 9)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(RawConnection(watch.address)) for _ in range(50)]
        for byte in frame:
            for connection in slow:
                connection.send(bytes([byte]))
        for connection in slow:
            assert connection.receive(ApiKey.API_VERSIONS, 0)[0] == 9
    watch.wait_for_rounds()


def test_lengths_that_promise_what_never_comes_take_no_memory_and_keep_no_large_request_waiting(
    watch: Watch, brokers: Cluster, names: Names
) -> None:
    large = create_topic(brokers.bootstrap_servers, "large", settings={"max.message.bytes": str(20 * MIB)})
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(10 * MIB))])
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            liar = stack.enter_context(RawConnection(watch.address))
            liar.send(struct.pack(">i", 100 * MIB) + bytes(1000))
        watch.wait_for_rounds()
        connection = stack.enter_context(RawConnection(watch.address))
        assert send(connection, Names("large", large, ""), batch).error_code == 0
        watch.check()


def test_large_requests_that_stall_take_no_more_than_their_bound_together(watch: Watch, names: Names) -> None:
    count = 40
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stalled = stack.enter_context(RawConnection(watch.address))
            stalled.send(struct.pack(">i", 90 * MIB) + bytes(2 * MIB))
        # One request may go beyond the bound; while a buffer grows there are two.
        bound = ARRIVING_BYTES_MAX + 200 * MIB
        watch.check(bound)
        watch.wait_for_rounds(rss_bytes_max=bound)
    watch.wait_for_rounds()


@pytest.fixture
def filled(connection: RawConnection, names: Names) -> Names:
    """A topic with some twenty MiB in it."""
    for _ in range(24):
        assert send(connection, names, plain_batch(bytes(900_000))).error_code == 0
    return names


@pytest.mark.parametrize("kind", ["memory", "files", "behind a long poll"])
def test_a_client_that_never_reads_is_not_listened_to_any_more(watch: Watch, filled: Names, kind: str) -> None:
    everything = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)],
        include_documentation=True,
    )
    frame = {
        "memory": request_frame(everything, 4),
        "files": request_frame(fetch(12, filled, max_bytes=1 << 30, partition_max_bytes=1 << 30), 12),
        "behind a long poll": request_frame(everything, 4),
    }[kind]
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            deaf = stack.enter_context(RawConnection(watch.address))
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CLIENT_RECEIVE_BYTES)
            if kind == "behind a long poll":
                deaf.send_request(fetch(12, filled, offset=24, max_wait_ms=2**31 - 1, min_bytes=1 << 30), 12)
            assert fills_up(deaf, frame), "the broker takes request after request from somebody who never reads"
        watch.check()
        watch.wait_for_rounds()


def fills_up(connection: RawConnection, frame: bytes) -> bool:
    """Send until nothing more is taken for a while; False when fifty MiB were."""
    connection.socket.settimeout(0.5)
    chunk = frame * (100_000 // len(frame))
    try:
        for _ in range(500):
            connection.socket.sendall(chunk)
    except TimeoutError:
        return True
    return False


def test_many_connections_cost_little_each_and_are_all_served(watch: Watch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(CONNECTIONS, hard // 3)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 200)), hard))
    before = resident_bytes(watch.process.pid)
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(RawConnection(watch.address)) for _ in range(count)]
        for number, connection in enumerate(many):
            connection.send(request_frame(ApiVersionsRequest(), 0, number))
        for number, connection in enumerate(many):
            assert connection.receive(ApiKey.API_VERSIONS, 0)[0] == number
        grown = resident_bytes(watch.process.pid) - before
        assert grown < count * CONNECTION_BYTES_MAX, f"{count} connections take {grown // MIB} MiB"
        watch.wait_for_rounds()
    watch.wait_for_rounds()


@pytest.fixture
def limited() -> Iterator[Watch]:
    """A broker that takes five connections, of which the bystander has one."""
    with cluster(settings={"max.connections": "5"}) as brokers, watched(brokers.brokers[0]) as watching:
        # It has its place before the others take theirs.
        watching.wait_for_rounds()
        yield watching


def test_connections_over_the_limit_are_refused_with_a_line_a_second_and_room_is_given_back(limited: Watch) -> None:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(RawConnection(limited.address)) for _ in range(4)]
        for connection in taken:
            connection.ask(ApiVersionsRequest(), 0)
        for _ in range(50):
            with RawConnection(limited.address) as refused:
                assert refused.wait_until_closed() == b""
        limited.wait_for_rounds()
    lines = [line for line in limited.process.log().splitlines() if "max.connections" in line]
    assert 1 <= len(lines) < 50, "a client in a tight loop fills the log"
    deadline = time.monotonic() + 20
    while not is_welcome(limited.address):
        assert time.monotonic() < deadline, "the places of closed connections are not given to others"


def is_welcome(address: str) -> bool:
    with RawConnection(address) as connection:
        try:
            connection.ask(ApiVersionsRequest(), 0)
        except Closed:
            return False
    return True
