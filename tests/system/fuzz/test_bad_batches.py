"""Batches that lie: about their checksum, their codec, their count, or how much they unfold to."""

from __future__ import annotations

import struct

import pytest

from raftlog.testing import Cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import HEADER_SIZE, BatchHeader, Record, assemble_batch, encode_batch, parse_header
from raftlog.wire.compression import Compression, compress
from raftlog.wire.errors import ErrorCode
from tests.system.fuzz.watch import Watch
from tests.system.traps.batches import TIME_MS, everything, plain_batch, read, send
from tests.system.traps.raw import RawConnection, create_topic
from tests.system.traps.sensible import Names, produce
from tests.system.traps.test_fetch_traps import offset_of

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
UNPACKING_TOPICS = {"compacted": {"cleanup.policy": "compact"}, "recompressed": {"compression.type": "gzip"}}
# A batch that has the topic's own codec already is not unpacked for it.
UNPACKED = [(codec, kind) for kind in UNPACKING_TOPICS for codec in CODECS]
UNPACKED.remove((Compression.GZIP, "recompressed"))
BOMB_BYTES = 200 << 20
BOMB_RSS_BYTES_MAX = 450 << 20
"""What a batch unfolds to is bounded by MAX_DECOMPRESSED_BYTES, 128 MiB, of which there are up to three copies."""
HOUR_MS = 3_600_000


def header_of(codec: Compression, count: int, *, time_ms: int = TIME_MS) -> BatchHeader:
    return BatchHeader(0, 0, -1, 2, 0, int(codec), count - 1, time_ms, time_ms, -1, -1, -1, count)


def topic_with(brokers: Cluster, names: Names, settings: dict[str, str]) -> Names:
    """Another topic for the test, with settings."""
    name = f"{names.topic[:150]}-{'-'.join(settings.values())}"
    return Names(name, create_topic(brokers.bootstrap_servers, name, settings=settings), name)


def minimal_records(count: int) -> bytes:
    """Records with an empty key and an empty value, seven to ten bytes each."""
    out = bytearray()
    for number in range(count):
        delta = bytearray()
        rest = number * 2
        while rest > 0x7F:
            delta.append(rest & 0x7F | 0x80)
            rest >>= 7
        delta.append(rest)
        body = b"\0\0" + delta + b"\0\0\0"
        out.append(len(body) * 2)
        out += body
    return bytes(out)


def with_byte(batch: bytes, place: int, value: int) -> bytes:
    return batch[:place] + bytes([value]) + batch[place + 1 :]


SOUND = plain_batch(b"a", b"b", b"c")
BAD_BATCHES = {
    "wrong checksum": (with_byte(SOUND, 20, SOUND[20] ^ 1), ErrorCode.CORRUPT_MESSAGE),
    "one bit wrong in a record": (with_byte(SOUND, len(SOUND) - 2, SOUND[-2] ^ 1), ErrorCode.CORRUPT_MESSAGE),
    "magic 3": (with_byte(SOUND, 16, 3), ErrorCode.CORRUPT_MESSAGE),
    "magic 1": (with_byte(SOUND, 16, 1), ErrorCode.INVALID_RECORD),
    "magic 0": (with_byte(SOUND, 16, 0), ErrorCode.INVALID_RECORD),
    "length too large": (SOUND[:8] + struct.pack(">i", 2**31 - 1) + SOUND[12:], ErrorCode.INVALID_RECORD),
    "length negative": (SOUND[:8] + struct.pack(">i", -1) + SOUND[12:], ErrorCode.CORRUPT_MESSAGE),
    "length too small": (SOUND[:8] + struct.pack(">i", 20) + SOUND[12:], ErrorCode.CORRUPT_MESSAGE),
    "cut in the header": (SOUND[:40], ErrorCode.INVALID_RECORD),
    "cut in the records": (SOUND[:-1], ErrorCode.INVALID_RECORD),
    "one byte": (b"\0", ErrorCode.INVALID_RECORD),
    "two batches": (SOUND + SOUND, ErrorCode.INVALID_RECORD),
    "codec 5": (assemble_batch(parse_header(SOUND)._replace(attributes=5), SOUND[61:]), ErrorCode.INVALID_RECORD),
    "control batch": (
        assemble_batch(parse_header(SOUND)._replace(attributes=0x20), SOUND[61:]),
        ErrorCode.INVALID_RECORD,
    ),
    "no records": (
        assemble_batch(parse_header(SOUND)._replace(records_count=0, last_offset_delta=-1), b""),
        ErrorCode.INVALID_RECORD,
    ),
    "a base offset": (struct.pack(">q", 7) + SOUND[8:], ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_is_refused_with_kafka_s_error_and_the_connection_goes_on(
    connection: RawConnection, names: Names, case: str
) -> None:
    batch, expected = BAD_BATCHES[case]
    assert send(connection, names, batch).error_code == expected
    assert send(connection, names, SOUND).base_offset == 0, "something of the bad batch was kept"
    assert everything(connection, names) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("count", [-1, 0, 2, 4, 1_000_000, 2**31 - 1])
@pytest.mark.parametrize("delta", [-1, 2, 2**31 - 1])
def test_a_count_that_does_not_match_the_offsets_is_refused(
    connection: RawConnection, names: Names, count: int, delta: int
) -> None:
    header = parse_header(SOUND)._replace(records_count=count, last_offset_delta=delta)
    lying = assemble_batch(header, SOUND[HEADER_SIZE:])
    assert send(connection, names, lying).error_code == ErrorCode.INVALID_RECORD
    assert read(connection, names).high_watermark == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_cannot_claim_more_records_than_could_unfold(
    connection: RawConnection, names: Names, codec: Compression
) -> None:
    count = 2**31 - 1
    lying = assemble_batch(header_of(codec, count), compress(codec, minimal_records(3)))
    assert send(connection, names, lying).error_code == ErrorCode.INVALID_RECORD
    assert read(connection, names).high_watermark == 0


@pytest.mark.parametrize("codec, kind", UNPACKED)
def test_a_count_that_lies_is_found_where_the_broker_unpacks_anyway(
    brokers: Cluster, connection: RawConnection, names: Names, codec: Compression, kind: str
) -> None:
    target = topic_with(brokers, names, UNPACKING_TOPICS[kind])
    lying = assemble_batch(header_of(codec, 2000), compress(codec, minimal_records(3)))
    assert send(connection, target, lying).error_code == ErrorCode.INVALID_RECORD
    assert read(connection, target).high_watermark == 0


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_nobody_can_unpack_costs_its_readers_that_batch_and_nobody_the_partition(
    watch: Watch, connection: RawConnection, names: Names, codec: Compression
) -> None:
    garbage = assemble_batch(header_of(codec, 1), b"this was never compressed, and its checksum is right")
    send(connection, names, plain_batch(b"before", time_ms=TIME_MS - 1000))
    assert send(connection, names, garbage).error_code == ErrorCode.NONE, "a broker does not unpack what it passes on"
    assert send(connection, names, plain_batch(b"behind")).base_offset == 2
    assert offset_of(connection, names, TIME_MS)[:2] == (ErrorCode.NONE, 1)
    assert offset_of(connection, names, -3)[0] == ErrorCode.NONE
    assert send(connection, names, plain_batch(b"still")).error_code == ErrorCode.NONE
    assert read(connection, names, offset=2).error_code == ErrorCode.NONE


@pytest.mark.parametrize("codec, kind", [case for case in UNPACKED if case[0] in (Compression.GZIP, Compression.ZSTD)])
def test_a_decompression_bomb_is_refused_in_bounded_memory(
    brokers: Cluster, watch: Watch, connection: RawConnection, names: Names, codec: Compression, kind: str
) -> None:
    bomb = assemble_batch(header_of(codec, 1), compress(codec, bytes(BOMB_BYTES)))
    assert len(bomb) < 1 << 20
    target = topic_with(brokers, names, UNPACKING_TOPICS[kind])
    for _ in range(2):
        answer = send(connection, target, bomb)
        assert answer.error_code == ErrorCode.INVALID_RECORD and "unfolds" in (answer.error_message or "")
        watch.check(BOMB_RSS_BYTES_MAX)
    watch.wait_for_rounds()


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4])
def test_the_largest_batch_of_a_codec_with_a_length_of_its_own_unfolds_in_bounded_memory(
    brokers: Cluster, watch: Watch, connection: RawConnection, names: Names, codec: Compression
) -> None:
    bomb = assemble_batch(header_of(codec, 1), compress(codec, bytes(15 << 20)))
    target = topic_with(brokers, names, UNPACKING_TOPICS["compacted"])
    assert send(connection, target, bomb).error_code == ErrorCode.INVALID_RECORD
    watch.check()


def test_half_a_million_records_in_a_small_batch_are_looked_at_in_bounded_memory(
    brokers: Cluster, watch: Watch, connection: RawConnection, names: Names
) -> None:
    count = 500_000
    payload = compress(Compression.ZSTD, minimal_records(count))
    target = topic_with(brokers, names, UNPACKING_TOPICS["compacted"])
    batch = assemble_batch(header_of(Compression.ZSTD, count), payload)
    assert send(connection, target, batch).error_code == ErrorCode.NONE
    watch.check()
    late = assemble_batch(header_of(Compression.ZSTD, count, time_ms=TIME_MS + 2 * HOUR_MS), payload)
    answer = send(connection, names, late)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP and len(answer.record_errors) <= 1000
    watch.check()
    assert send(connection, names, batch).error_code == ErrorCode.NONE
    assert offset_of(connection, names, TIME_MS) == (ErrorCode.NONE, 0, TIME_MS)
    watch.check()


def test_requests_behind_one_that_takes_long_to_check_are_answered_after_it(
    brokers: Cluster, connection: RawConnection, names: Names
) -> None:
    compacted = topic_with(brokers, names, UNPACKING_TOPICS["compacted"])
    count = 50_000
    long = assemble_batch(header_of(Compression.ZSTD, count), compress(Compression.ZSTD, minimal_records(count)))
    keyed = encode_batch([Record(0, TIME_MS, b"k", b"v")])
    for records in (keyed, long, keyed, long, keyed):
        connection.send_request(produce(9, compacted, records=records), 9)
    answers = [connection.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0] for _ in range(5)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 5
    assert [answer.base_offset for answer in answers] == [0, 1, count + 1, count + 2, 2 * count + 2]
