"""Produce payloads of every kind a client could send, with the error code Kafka 4.3.1 answers to each.

A table for two tests: our own checks, and the same payloads sent to a real Kafka. `ours` differs from `kafka`
only where Kafka reads every record and we read the header, or where Kafka lets something pass that nobody can
mean.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from raftlog.wire.batch import HEADER_SIZE, Record, assemble_batch, encode_batch, parse_header
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode

NONE, INVALID, CORRUPT = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
TOO_LARGE, BAD_TIME = ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "gzip": {"compression.type": "gzip"},
    "gzip-compacted": {"compression.type": "gzip", "cleanup.policy": "compact"},
    "small": {"max.message.bytes": "200"},
    "unpacked-small": {"compression.type": "uncompressed", "max.message.bytes": "300"},
    "timed": {"message.timestamp.before.max.ms": "600000", "message.timestamp.after.max.ms": "300000"},
    "segment": {"segment.bytes": "1048576", "max.message.bytes": "3000000"},
}


class Case(NamedTuple):
    """One payload. `times` are the positions of the records that are refused by name, as both should list
    them."""

    name: str
    topic: str
    payload: bytes
    kafka: ErrorCode
    ours: ErrorCode
    refused_records: tuple[int, ...] = ()


def batch_of(count: int, time: int, *, value: bytes = b"v", key: bytes | None = b"k", **options: int) -> bytes:
    """Records at the offsets 0, 1, …, all with the same time, key and value."""
    compression = Compression(options.pop("compression", Compression.NONE))
    records = [Record(offset, time, key, value) for offset in range(count)]
    return encode_batch(records, compression=compression, **options)  # type: ignore[arg-type]


def reheaded(batch: bytes, **changes: int) -> bytes:
    """The batch with header fields changed and the checksum right again."""
    return assemble_batch(parse_header(batch)._replace(**changes), batch[HEADER_SIZE:])


def with_length(batch: bytes, length: int) -> bytes:
    return batch[:8] + struct.pack(">i", length) + batch[12:]


def with_magic(batch: bytes, magic: int) -> bytes:
    return batch[:16] + bytes([magic]) + batch[17:]


def with_wrong_crc(batch: bytes) -> bytes:
    return batch[:18] + bytes([batch[18] ^ 1]) + batch[19:]


def old_message(magic: int, time: int) -> bytes:
    """A valid message of format 0 or 1."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", time) if magic else b"")
    body += struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def cases(now: int) -> list[Case]:
    """All cases, with timestamps around `now` (ms since 1970)."""
    good = batch_of(2, now)
    packed = batch_of(2, now, compression=Compression.GZIP)
    far = Record(2, now + 900_000, b"k", b"v")
    mixed = [Record(0, now, b"k", b"v"), Record(1, now - 900_000, b"k", b"v"), far]
    gap = [Record(0, now, b"k", b"v"), Record(2, now, b"k", b"v")]
    return [
        *shape_cases(good, now),
        *header_cases(good, packed, now),
        Case("values that make it too large", "small", batch_of(1, now, value=b"x" * 300), TOO_LARGE, TOO_LARGE),
        Case("too large is found before the checksum", "small", with_wrong_crc(batch_of(1, now, value=b"x" * 300)),
             TOO_LARGE, TOO_LARGE),
        Case("exactly as large as allowed", "small", batch_of(1, now, key=None, value=b"x" * 130), NONE, NONE),
        Case("too large once it is unpacked", "unpacked-small",
             batch_of(1, now, value=b"x" * 900, compression=Compression.GZIP), TOO_LARGE, TOO_LARGE),
        Case("larger than a segment", "segment", batch_of(1, now, value=b"x" * 2_000_000),
             ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
        Case("old but within bounds", "timed", batch_of(2, now - 500_000), NONE, NONE),
        Case("too old", "timed", batch_of(2, now - 700_000), BAD_TIME, BAD_TIME, (0, 1)),
        Case("too far ahead", "timed", batch_of(2, now + 400_000), BAD_TIME, BAD_TIME, (0, 1)),
        Case("too far ahead, packed", "timed", batch_of(2, now + 400_000, compression=Compression.ZSTD),
             BAD_TIME, BAD_TIME, (0, 1)),
        Case("more than an hour ahead by default", "plain", batch_of(1, now + 3_900_000), BAD_TIME, BAD_TIME, (0,)),
        Case("as old as one likes by default", "plain", batch_of(1, 0), NONE, NONE),
        Case("without a time", "timed", batch_of(1, -1), NONE, NONE),
        Case("some times out of bounds", "timed", encode_batch(mixed), BAD_TIME, BAD_TIME, (1, 2)),
        Case("a header that lies about its greatest time", "timed",
             reheaded(good, max_timestamp=now + 9_000_000), NONE, NONE),
        Case("a header without its greatest time", "timed", reheaded(good, max_timestamp=-1), NONE, NONE),
        Case("a time is no matter when the broker sets it", "append-time", batch_of(1, now + 9_000_000), NONE, NONE),
        Case("a client sets no append time", "append-time", reheaded(good, attributes=8), BAD_TIME, BAD_TIME, (0, 1)),
        Case("an append-time bit under create time", "plain", reheaded(good, attributes=8), NONE, NONE),
        Case("without keys", "compacted", batch_of(3, now, key=None), INVALID, INVALID, (0, 1, 2)),
        Case("without keys, packed", "both", batch_of(1, now, key=None, compression=Compression.LZ4),
             INVALID, INVALID, (0,)),
        Case("without keys, to be packed again", "gzip-compacted", batch_of(1, now, key=None), INVALID, INVALID, (0,)),
        Case("with empty keys", "compacted", batch_of(2, now, key=b""), NONE, NONE),
        Case("a gap in the offsets of the header", "plain", encode_batch(gap), INVALID, INVALID),
        # Kafka does not look at the offset deltas of plain batches either.
        Case("a gap in the offsets of the records", "plain",
             reheaded(encode_batch(gap), last_offset_delta=1), NONE, NONE),
        Case("garbage for records", "plain", assemble_batch(parse_header(good), b"\xff" * 20), UNKNOWN, NONE),
        Case("garbage for packed records", "plain", assemble_batch(parse_header(packed), b"\xff" * 20), UNKNOWN, NONE),
        Case("garbage where keys are needed", "compacted", assemble_batch(parse_header(good), b"\xff" * 20),
             UNKNOWN, INVALID),
        Case("garbage to be packed again", "gzip",
             assemble_batch(parse_header(batch_of(2, now, compression=Compression.LZ4)), b"\xff" * 20),
             UNKNOWN, INVALID),
        Case("fewer records than there are, to be packed again", "gzip",
             reheaded(batch_of(3, now, compression=Compression.LZ4), records_count=2, last_offset_delta=1),
             INVALID, NONE),
        Case("more bytes than a record has, to be packed again", "gzip",
             assemble_batch(parse_header(batch_of(1, now)), b"\x10\x00\x00\x00\x01\x01\x00zz"), INVALID, NONE),
        Case("more bytes than a record has", "compacted",
             assemble_batch(parse_header(batch_of(1, now)), b"\x12\x00\x00\x00\x02k\x01\x00zz"), INVALID, INVALID),
        Case("more bytes than a record has, which nobody looks at", "plain",
             assemble_batch(parse_header(batch_of(1, now)), b"\x12\x00\x00\x00\x02k\x01\x00zz"), INVALID, NONE),
        Case("more headers than there are", "compacted",
             assemble_batch(parse_header(batch_of(1, now)), b"\x10\x00\x00\x00\x02k\x00\x40\x00"), INVALID, INVALID),
        Case("a header without a name", "compacted",
             assemble_batch(parse_header(batch_of(1, now)), b"\x14\x00\x00\x00\x02k\x02v\x02\x01\x00"),
             INVALID, INVALID),
    ]  # fmt: skip


def shape_cases(good: bytes, now: int) -> list[Case]:
    """Payloads that are not exactly one batch of format 2."""
    return [
        Case("a good batch", "plain", good, NONE, NONE),
        Case("nothing", "plain", b"", INVALID, INVALID),
        Case("a few bytes", "plain", bytes(10), INVALID, INVALID),
        Case("a length of zero", "plain", bytes(20), CORRUPT, CORRUPT),
        Case("two batches", "plain", good + good, INVALID, INVALID),
        Case("bytes after the batch", "plain", good + bytes(5), NONE, INVALID),
        Case("a piece of another batch after it", "plain", good + good[:40], NONE, INVALID),
        Case("cut short", "plain", good[:-1], INVALID, INVALID),
        Case("cut within the header", "plain", good[:40], INVALID, INVALID),
        Case("message format 1", "plain", old_message(1, now), INVALID, INVALID),
        Case("message format 0", "plain", old_message(0, now), INVALID, INVALID),
        Case("two formats", "plain", good + old_message(1, now), INVALID, INVALID),
        Case("message format 3", "plain", with_magic(good, 3), CORRUPT, CORRUPT),
        Case("message format -1", "plain", with_magic(good, 255), CORRUPT, CORRUPT),
        Case("a length below the header", "plain", with_length(good, 48), CORRUPT, CORRUPT),
        Case("a length of 14", "plain", with_length(good, 14), CORRUPT, CORRUPT),
        Case("a length of 13", "plain", with_length(good, 13), CORRUPT, CORRUPT),
        Case("a negative length", "plain", with_length(good, -1), CORRUPT, CORRUPT),
        Case("a wrong checksum", "plain", with_wrong_crc(good), CORRUPT, CORRUPT),
    ]


def header_cases(good: bytes, packed: bytes, now: int) -> list[Case]:
    """Headers with a right checksum that say something a client may not say, or may."""
    count_max = 2**31 - 1
    return [
        Case("a base offset", "plain", reheaded(good, base_offset=5), INVALID, INVALID),
        Case("a base offset is found before the checksum", "plain", with_wrong_crc(reheaded(good, base_offset=5)),
             INVALID, INVALID),
        Case("a leader epoch is written over", "plain", reheaded(good, partition_leader_epoch=7), NONE, NONE),
        Case("fewer records than offsets", "plain", reheaded(good, records_count=1), INVALID, INVALID),
        Case("more offsets than records", "plain", reheaded(good, last_offset_delta=5), INVALID, INVALID),
        Case("no records", "plain", reheaded(good, records_count=0), INVALID, INVALID),
        Case("less than no records", "plain", reheaded(good, records_count=-1), INVALID, INVALID),
        Case("no records and no offsets", "plain", reheaded(good, records_count=0, last_offset_delta=-1),
             INVALID, INVALID),
        Case("an empty batch", "plain", assemble_batch(
             parse_header(good)._replace(records_count=0, last_offset_delta=0), b""), INVALID, INVALID),
        Case("two thousand million records", "plain",
             reheaded(good, records_count=count_max, last_offset_delta=count_max - 1), INVALID, INVALID),
        Case("two thousand million packed records", "plain",
             reheaded(packed, records_count=count_max, last_offset_delta=count_max - 1), INVALID, INVALID),
        Case("a record that the header leaves out", "plain",
             reheaded(good, records_count=1, last_offset_delta=0), INVALID, NONE),
        Case("a record that the header leaves out, where keys are needed", "compacted",
             reheaded(good, records_count=1, last_offset_delta=0), INVALID, INVALID),
        Case("a control batch", "plain", batch_of(1, now, control=1), INVALID, INVALID),
        Case("a packed control batch", "plain", batch_of(1, now, control=1, compression=Compression.GZIP),
             INVALID, INVALID),
        Case("attributes nobody has defined", "plain", reheaded(good, attributes=0x180), NONE, NONE),
        Case("codec 5", "plain", reheaded(good, attributes=5), UNKNOWN, INVALID),
        Case("codec 7", "plain", reheaded(good, attributes=7), UNKNOWN, INVALID),
        Case("a producer without sequence", "plain",
             batch_of(2, now, producer_id=500, producer_epoch=0, base_sequence=-1), INVALID, INVALID),
        Case("a producer with sequence -2", "plain",
             batch_of(2, now, producer_id=501, producer_epoch=0, base_sequence=-2), INVALID, INVALID),
        Case("a producer without epoch", "plain",
             batch_of(2, now, producer_id=502, producer_epoch=-1, base_sequence=0), NONE, INVALID),
        Case("a sequence without producer", "plain",
             batch_of(2, now, producer_id=-1, producer_epoch=3, base_sequence=5), NONE, NONE),
        Case("a producer in sequence", "plain",
             batch_of(2, now, producer_id=503, producer_epoch=0, base_sequence=0), NONE, NONE),
    ]  # fmt: skip
