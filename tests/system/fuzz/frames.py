"""Frames that nearly are requests: sensible ones with a few bytes wrong, and well-formed ones with absurd values.

Everything follows from a seed: frame number n of a seed is the same on every machine.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from raftlog.broker.api.handlers import served_apis
from raftlog.wire.apis import Api, ApiKey
from raftlog.wire.batch import HEADER_SIZE, Record, assemble_batch, encode_batch, parse_header
from raftlog.wire.codec import encode
from raftlog.wire.compression import Compression
from raftlog.wire.errors import NotEncodable, UnsupportedVersionField
from raftlog.wire.headers import encode_request_header
from raftlog.wire.schema import Field, Kind, Struct
from tests.system.traps.sensible import Names, sensible_request

TIME_MS = 1_760_000_000_000
INTEGERS = (
    *(0, 1, -1, 2, 7, 127, -128, 255, 256, 32767, -32768, 65535),
    *(2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)),
)
PATCHES = (
    *(b"\0", b"\xff", b"\x7f", b"\x80", b"\0\0", b"\xff\xff", b"\x7f\xff\xff\xff"),
    *(b"\xff\xff\xff\xff\x07", b"\x80" * 6),
)
STRINGS = (
    *("", "consumer", "range", "a", ".", "..", "a/b", "x" * 249, "x" * 250, "x" * 32767),
    *("é", "\0", "\n", "%s", "1", "-1"),
)
CONFIGS = (
    *("retention.ms", "segment.bytes", "max.message.bytes", "cleanup.policy", "compression.type"),
    *("message.timestamp.type", "flush.messages", "no.such.config"),
)
LENGTHS = (-1, -(2**31), 0, 1, 4, 7, 8, 2**31 - 1, 100 * 2**20 + 1, 0x16030100)
BYTES_OF_JUNK_MAX = 400
HEADER_BYTES = 14
"""API key, version, correlation id and the client id "fuzz" with its length: most of the damage is behind them."""
_WIDTHS = {Kind.INT8: 8, Kind.INT16: 16, Kind.UINT16: 16, Kind.INT32: 32, Kind.INT64: 64}


class Frames:
    """The frames of one seed. `names` are what the sensible requests talk about."""

    def __init__(self, seed: int, names: Names) -> None:
        self.seed = seed
        self._names = names
        self._sensible: list[bytes] = []
        for api in served_apis():
            for version in range(api.min_version, api.max_version + 1):
                request = sensible_request(api.key, version, names)
                header = encode_request_header(api.key, version, 1, "fuzz")
                self._sensible.append(encode(request, version, header))
        self._apis = [api for api in served_apis() for _ in range(3 if api.key == ApiKey.PRODUCE else 1)]
        self._strings = (*STRINGS, names.topic, names.group, *CONFIGS)
        self._kinds: list[Callable[[random.Random], bytes]] = [
            *[self._damaged] * 10,
            *[self._absurd] * 8,
            *[self._batch] * 3,
            self._cut,
            self._too_long,
            self._spliced,
            self._of_another_version,
            self._junk,
            self._sound,
        ]

    def frame(self, number: int) -> bytes:
        """The frame of this number, with its length in front, which now and then lies."""
        rng = random.Random(self.seed << 32 | number)
        body = rng.choice(self._kinds)(rng)
        length = len(body)
        if rng.random() < 0.002:
            length = rng.choice((*LENGTHS, length + 1, length - 1, length * 2))
        return struct.pack(">i", length) + body

    def range(self, start: int, end: int) -> Iterator[bytes]:
        return map(self.frame, range(start, end))

    # ── kinds of damage ───────────────────────────────────────────────────────────────────────────────────

    def _sound(self, rng: random.Random) -> bytes:
        return rng.choice(self._sensible)

    def _damaged(self, rng: random.Random) -> bytes:
        body = bytearray(rng.choice(self._sensible))
        for _ in range(rng.randint(1, 3)):
            damage(body, rng, keep=HEADER_BYTES if rng.random() < 0.9 else 0)
        return bytes(body)

    def _cut(self, rng: random.Random) -> bytes:
        body = rng.choice(self._sensible)
        return body[: rng.randrange(len(body))]

    def _too_long(self, rng: random.Random) -> bytes:
        return rng.choice(self._sensible) + rng.randbytes(rng.randint(1, BYTES_OF_JUNK_MAX))

    def _spliced(self, rng: random.Random) -> bytes:
        head, tail = rng.choice(self._sensible), rng.choice(self._sensible)
        return head[: rng.randrange(10, len(head))] + tail[rng.randrange(10, len(tail)) :]

    def _of_another_version(self, rng: random.Random) -> bytes:
        body = rng.choice(self._sensible)
        return body[:2] + struct.pack(">h", rng.choice((rng.randint(0, 20), -1, 32767))) + body[4:]

    def _junk(self, rng: random.Random) -> bytes:
        return rng.randbytes(rng.randint(0, BYTES_OF_JUNK_MAX))

    # ── well-formed, and absurd ───────────────────────────────────────────────────────────────────────────

    def _absurd(self, rng: random.Random) -> bytes:
        api = rng.choice(self._apis)
        version = rng.randint(api.min_version, api.max_version)
        for _ in range(4):
            try:
                return self._encoded(rng, api, version)
            except (NotEncodable, UnsupportedVersionField, struct.error):
                continue
        return self._damaged(rng)

    def _encoded(self, rng: random.Random, api: Api, version: int) -> bytes:
        message = self._struct(rng, api.request, version)
        return encode(message, version, encode_request_header(api.key, version, 1, "absurd"))

    def _struct(self, rng: random.Random, cls: type[Struct], version: int) -> Any:
        values = {
            field.name: self._value(rng, field, version) for field in cls.__fields__ if field.versions.hold(version)
        }
        return cls(**values)

    def _value(self, rng: random.Random, field: Field, version: int) -> Any:
        if field.nullable.hold(version) and rng.random() < 0.2:
            return None
        if field.kind is Kind.ARRAY:
            assert field.element is not None
            return [self._scalar(rng, field, field.element, version) for _ in range(rng.choice((0, 1, 1, 2, 9)))]
        return self._scalar(rng, field, field.kind, version)

    def _scalar(self, rng: random.Random, field: Field, kind: Kind, version: int) -> Any:
        if kind is Kind.STRUCT:
            assert field.struct is not None
            return self._struct(rng, field.struct, version)
        if kind is Kind.STRING:
            return rng.choice(self._strings)
        if kind is Kind.UUID:
            return rng.choice((self._names.topic_id, bytes(16), rng.randbytes(16)))
        if kind is Kind.RECORDS:
            return damaged_batch(rng)
        if kind is Kind.BYTES:
            return rng.randbytes(rng.choice((0, 1, 50)))
        if kind is Kind.BOOL:
            # Nothing is created or deleted by most of them.
            return rng.random() < (0.9 if field.name == "validate_only" else 0.5)
        if kind is Kind.FLOAT64:
            return rng.choice((0.0, -1.0, float("inf"), float("nan")))
        if field.name == "num_partitions" or field.name == "count":
            return rng.choice((0, 1, 3, -1, 2**31 - 1))  # what is legal and large only costs time
        if field.name == "max_wait_ms":
            return rng.choice((0, 1, -1, -(2**31)))  # a long wait is legal, too
        return fitting(rng.choice(INTEGERS), kind)

    def _batch(self, rng: random.Random) -> bytes:
        """A produce request in which everything is right but the batch."""
        version = rng.randint(3, 12)
        request: Any = sensible_request(ApiKey.PRODUCE, version, self._names)
        request.topic_data[0].partition_data[0].records = damaged_batch(rng)
        request.acks = rng.choice((1, -1))
        return encode(request, version, encode_request_header(ApiKey.PRODUCE, version, 1, "batch"))


def fitting(number: int, kind: Kind) -> int:
    """The number, wrapped into what the type holds."""
    bits = _WIDTHS[kind]
    wrapped = number % 2**bits
    return wrapped if kind is Kind.UINT16 or wrapped < 2 ** (bits - 1) else wrapped - 2**bits


def damage(body: bytearray, rng: random.Random, *, keep: int = 0) -> None:
    """Change, insert or remove a few bytes behind the first `keep`."""
    place = rng.randrange(min(keep, len(body)), len(body) + 1)
    match rng.randrange(5):
        case 0:
            patch = rng.choice(PATCHES)
            body[place : place + len(patch)] = patch
        case 1 if place < len(body):
            body[place] ^= 1 << rng.randrange(8)
        case 2:
            body[place:place] = rng.choice(PATCHES)
        case 3:
            del body[place : place + rng.choice((1, 2, 4, 8))]
        case _:
            packed = struct.pack(">i", fitting(rng.choice(INTEGERS), Kind.INT32))
            body[place : place + 4] = packed


def damaged_batch(rng: random.Random) -> bytes:
    """A record batch that lies about itself, mostly with a checksum that is right nevertheless."""
    codec = Compression(rng.randrange(5))
    size, count = rng.choice((0, 1, 300)), rng.randint(1, 4)
    records = [Record(number, TIME_MS, b"k", b"v" * size) for number in range(count)]
    identity = {}
    if rng.random() < 0.3:
        identity = {
            "producer_id": rng.choice((0, 1, 2**62)),
            "producer_epoch": rng.choice((0, 1, 32767)),
            "base_sequence": rng.choice((0, 1, 2**31 - 1)),
        }
    batch = encode_batch(records, compression=codec, **identity)
    match rng.randrange(6):
        case 0:
            damaged = bytearray(batch)
            damage(damaged, rng)
            return bytes(damaged)
        case 1:
            return batch[: rng.randrange(len(batch))]
        case 2:
            packed = bytearray(batch[HEADER_SIZE:])
            damage(packed, rng)
            return assemble_batch(parse_header(batch), packed)
        case 3:
            return batch + rng.choice((batch, b"\0", rng.randbytes(30)))
        case 4:
            return batch[:16] + bytes([rng.choice((0, 1, 3, 255))]) + batch[17:]
    return assemble_batch(_lying(batch, rng), batch[HEADER_SIZE:])


def _lying(batch: bytes, rng: random.Random) -> Any:
    header = parse_header(batch)
    name = rng.choice(
        ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "records_count")
    )
    bits = {"attributes": 16, "last_offset_delta": 32, "records_count": 32}.get(name, 64)
    wrapped = rng.choice(INTEGERS) % 2**bits
    return header._replace(**{name: wrapped if wrapped < 2 ** (bits - 1) else wrapped - 2**bits})
