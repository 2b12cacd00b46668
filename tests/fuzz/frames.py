"""Frames that nearly are requests: sensible ones with a few bytes wrong, and well-formed ones with absurd values.

Everything follows from a seed: frame number n of a seed is the same on every machine. Refuses to know sockets.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

from raftlog.broker.server.dispatcher import served_apis
from raftlog.wire.apis import Api, ApiKey
from raftlog.wire.batch import HEADER_SIZE, Record, assemble_batch, encode_batch, parse_header
from raftlog.wire.codec import encode
from raftlog.wire.compression import Compression
from raftlog.wire.errors import NotEncodable, UnsupportedVersionField
from raftlog.wire.headers import encode_request_header
from raftlog.wire.schema import Field, Kind, Struct
from tests.traps.sensible import Names, sensible_request

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
        chance = random.Random(self.seed << 32 | number)
        body = chance.choice(self._kinds)(chance)
        length = len(body)
        if chance.random() < 0.002:
            length = chance.choice((*LENGTHS, length + 1, length - 1, length * 2))
        return struct.pack(">i", length) + body

    def range(self, start: int, end: int) -> Iterator[bytes]:
        return map(self.frame, range(start, end))

    # ── kinds of damage ───────────────────────────────────────────────────────────────────────────────────

    def _sound(self, chance: random.Random) -> bytes:
        return chance.choice(self._sensible)

    def _damaged(self, chance: random.Random) -> bytes:
        body = bytearray(chance.choice(self._sensible))
        for _ in range(chance.randint(1, 3)):
            damage(body, chance, keep=HEADER_BYTES if chance.random() < 0.9 else 0)
        return bytes(body)

    def _cut(self, chance: random.Random) -> bytes:
        body = chance.choice(self._sensible)
        return body[: chance.randrange(len(body))]

    def _too_long(self, chance: random.Random) -> bytes:
        return chance.choice(self._sensible) + chance.randbytes(chance.randint(1, BYTES_OF_JUNK_MAX))

    def _spliced(self, chance: random.Random) -> bytes:
        head, tail = chance.choice(self._sensible), chance.choice(self._sensible)
        return head[: chance.randrange(10, len(head))] + tail[chance.randrange(10, len(tail)) :]

    def _of_another_version(self, chance: random.Random) -> bytes:
        body = chance.choice(self._sensible)
        return body[:2] + struct.pack(">h", chance.choice((chance.randint(0, 20), -1, 32767))) + body[4:]

    def _junk(self, chance: random.Random) -> bytes:
        return chance.randbytes(chance.randint(0, BYTES_OF_JUNK_MAX))

    # ── well-formed, and absurd ───────────────────────────────────────────────────────────────────────────

    def _absurd(self, chance: random.Random) -> bytes:
        api = chance.choice(self._apis)
        version = chance.randint(api.min_version, api.max_version)
        for _ in range(4):
            try:
                return self._encoded(chance, api, version)
            except (NotEncodable, UnsupportedVersionField, struct.error):
                continue
        return self._damaged(chance)

    def _encoded(self, chance: random.Random, api: Api, version: int) -> bytes:
        message = self._struct(chance, api.request, version)
        return encode(message, version, encode_request_header(api.key, version, 1, "absurd"))

    def _struct(self, chance: random.Random, cls: type[Struct], version: int) -> Any:
        values = {
            field.name: self._value(chance, field, version) for field in cls.__fields__ if field.versions.hold(version)
        }
        return cls(**values)

    def _value(self, chance: random.Random, field: Field, version: int) -> Any:
        if field.nullable.hold(version) and chance.random() < 0.2:
            return None
        if field.kind is Kind.ARRAY:
            assert field.element is not None
            return [self._scalar(chance, field, field.element, version) for _ in range(chance.choice((0, 1, 1, 2, 9)))]
        return self._scalar(chance, field, field.kind, version)

    def _scalar(self, chance: random.Random, field: Field, kind: Kind, version: int) -> Any:
        if kind is Kind.STRUCT:
            assert field.struct is not None
            return self._struct(chance, field.struct, version)
        if kind is Kind.STRING:
            return chance.choice(self._strings)
        if kind is Kind.UUID:
            return chance.choice((self._names.topic_id, bytes(16), chance.randbytes(16)))
        if kind is Kind.RECORDS:
            return damaged_batch(chance)
        if kind is Kind.BYTES:
            return chance.randbytes(chance.choice((0, 1, 50)))
        if kind is Kind.BOOL:
            # Nothing is created or deleted by most of them.
            return chance.random() < (0.9 if field.name == "validate_only" else 0.5)
        if kind is Kind.FLOAT64:
            return chance.choice((0.0, -1.0, float("inf"), float("nan")))
        if field.name == "num_partitions" or field.name == "count":
            return chance.choice((0, 1, 3, -1, 2**31 - 1))  # what is legal and large only costs time
        if field.name == "max_wait_ms":
            return chance.choice((0, 1, -1, -(2**31)))  # a long wait is legal, too
        return fitting(chance.choice(INTEGERS), kind)

    def _batch(self, chance: random.Random) -> bytes:
        """A produce request in which everything is right but the batch."""
        version = chance.randint(3, 12)
        request: Any = sensible_request(ApiKey.PRODUCE, version, self._names)
        request.topic_data[0].partition_data[0].records = damaged_batch(chance)
        request.acks = chance.choice((1, -1))
        return encode(request, version, encode_request_header(ApiKey.PRODUCE, version, 1, "batch"))


def fitting(number: int, kind: Kind) -> int:
    """The number, wrapped into what the type holds."""
    bits = _WIDTHS[kind]
    wrapped = number % 2**bits
    return wrapped if kind is Kind.UINT16 or wrapped < 2 ** (bits - 1) else wrapped - 2**bits


def damage(body: bytearray, chance: random.Random, *, keep: int = 0) -> None:
    """Change, insert or remove a few bytes behind the first `keep`."""
    place = chance.randrange(min(keep, len(body)), len(body) + 1)
    match chance.randrange(5):
        case 0:
            patch = chance.choice(PATCHES)
            body[place : place + len(patch)] = patch
        case 1 if place < len(body):
            body[place] ^= 1 << chance.randrange(8)
        case 2:
            body[place:place] = chance.choice(PATCHES)
        case 3:
            del body[place : place + chance.choice((1, 2, 4, 8))]
        case _:
            packed = struct.pack(">i", fitting(chance.choice(INTEGERS), Kind.INT32))
            body[place : place + 4] = packed


def damaged_batch(chance: random.Random) -> bytes:
    """A record batch that lies about itself, mostly with a checksum that is right nevertheless."""
    codec = Compression(chance.randrange(5))
    size, count = chance.choice((0, 1, 300)), chance.randint(1, 4)
    records = [Record(number, TIME_MS, b"k", b"v" * size) for number in range(count)]
    identity = {}
    if chance.random() < 0.3:
        identity = {
            "producer_id": chance.choice((0, 1, 2**62)),
            "producer_epoch": chance.choice((0, 1, 32767)),
            "base_sequence": chance.choice((0, 1, 2**31 - 1)),
        }
    batch = encode_batch(records, compression=codec, **identity)
    match chance.randrange(6):
        case 0:
            damaged = bytearray(batch)
            damage(damaged, chance)
            return bytes(damaged)
        case 1:
            return batch[: chance.randrange(len(batch))]
        case 2:
            packed = bytearray(batch[HEADER_SIZE:])
            damage(packed, chance)
            return assemble_batch(parse_header(batch), packed)
        case 3:
            return batch + chance.choice((batch, b"\0", chance.randbytes(30)))
        case 4:
            return batch[:16] + bytes([chance.choice((0, 1, 3, 255))]) + batch[17:]
    return assemble_batch(_lying(batch, chance), batch[HEADER_SIZE:])


def _lying(batch: bytes, chance: random.Random) -> Any:
    header = parse_header(batch)
    name = chance.choice(
        ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "records_count")
    )
    bits = {"attributes": 16, "last_offset_delta": 32, "records_count": 32}.get(name, 64)
    wrapped = chance.choice(INTEGERS) % 2**bits
    return header._replace(**{name: wrapped if wrapped < 2 ** (bits - 1) else wrapped - 2**bits})
