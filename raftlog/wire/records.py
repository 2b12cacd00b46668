"""Records inside a batch of format version 2: one varint-framed entry each (KIP-98).

Every length is checked against its record and every record against the payload, so a lying number ends in
CorruptRecord and never in a slice that is silently short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias, TypeVar, cast

from raftlog.wire.checksum import Buffer
from raftlog.wire.varint import encode_varint, read_varint, read_varlong

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

MIN_RECORD_BYTES = 7
"""The smallest record there is: seven fields of one byte, key and value null. Bounds how many a payload can
hold."""

_MIN_BODY_BYTES = MIN_RECORD_BYTES - 1
_INT64_LIMIT = 1 << 63
_SPANS_AT_A_TIME = 1024
_NULL = b"\x01"
_NULL_SIZE = _NULL[0]
_SIZES = tuple((byte & 0x7F) >> 1 if byte & 1 == 0 else 1 << 62 for byte in range(256))
"""By the first byte of a length: its lowest six bits, or more than anything has if it is negative."""
_HEADER_TEXT_ERRORS = "surrogateescape"
"""Header names are text by contract, but bytes that are no UTF-8 must survive reading and writing again."""


class CorruptRecord(ValueError):
    """A batch or a record in it is not what it says it is; the message is the reason."""


class Record(NamedTuple):
    """One record. `offset` counts from the start of the partition, `timestamp` is in ms since 1970 (-1:
    none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordSpan: TypeAlias = tuple[int, int, "bytes | None", int, int, int, int, int]
"""Where one record lies in a payload, for code that moves records without unpacking them: (offset delta, timestamp
delta, key, value start, value end, start, tail, end). The record is `payload[start:end]`; behind its length, attributes
and timestamp delta it goes on at `tail`. The value start of a tombstone is -1. A plain tuple, because there is one for
each record of a log."""


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The payload of a batch. Offsets must rise from `base_offset`; raises ValueError if they do not."""
    parts: list[bytes] = []
    previous = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - base_offset
        if delta <= previous:
            raise ValueError(f"offset {offset} does not rise above {base_offset + previous}")
        previous = delta
        body = [
            b"\x00",
            encode_varint(timestamp - base_timestamp),
            encode_varint(delta),
        ]
        if key is None:
            body.append(_NULL)
        else:
            body += (encode_varint(len(key)), key)
        if value is None:
            body.append(_NULL)
        else:
            body += (encode_varint(len(value)), value)
        if headers:
            _encode_headers(body, headers)
        else:
            body.append(b"\x00")
        parts.append(encode_varint(sum(map(len, body))))
        parts += body
    return b"".join(parts)


def _encode_headers(body: list[bytes], headers: Headers) -> None:
    body.append(encode_varint(len(headers)))
    for name, value in headers:
        text = name.encode("utf-8", _HEADER_TEXT_ERRORS)
        body += (encode_varint(len(text)), text)
        if value is None:
            body.append(_NULL)
        else:
            body += (encode_varint(len(value)), value)


Kind = TypeVar("Kind", bound=NamedTuple)


class RecordBase(NamedTuple):
    """What a batch's header says about its records. `append_time`: the timestamp of all, None if each has its own."""

    records_count: int
    offset: int
    timestamp: int
    append_time: int | None = None


def decode_records(payload: bytes, base: RecordBase) -> list[Record]:
    """The records of a payload, which must fill it exactly. Raises CorruptRecord."""
    return decode_records_as(Record, payload, base)


def decode_records_as(
    kind: type[Kind], payload: bytes, base: RecordBase, common: tuple[object, ...] = ()
) -> list[Kind]:
    """The same as named tuples of any `kind`: the fields of a Record, and then what is `common` to all."""
    scan = RecordScan(payload, base.records_count)
    records: list[Kind] = []
    if abs(base.timestamp) < _INT64_LIMIT >> 1:
        position, previous = _decode_ordinary(kind, payload, base, common, records)
        scan.skip(len(records), position, previous)
    while True:
        # Some at a time: a payload can hold many more records than there is memory for their spans beside them.
        for span in scan.take(_SPANS_AT_A_TIME):
            records.append(tuple.__new__(kind, (*_fields(payload, base, span), *common)))
        if not scan.remaining:
            return records


def _decode_ordinary(
    kind: type[Kind], payload: bytes, base: RecordBase, common: tuple[object, ...], records: list[Kind]
) -> tuple[int, int]:
    """Adds the records before the first that is damaged, or written as nobody does; where that begins, and the delta
    before it. One pass without calls, for this is most of what reading costs: a negative length counts as one that
    fits nowhere, and then all are right if the fields of each record end where the record does.
    """
    add, new, sizes = records.append, tuple.__new__, _SIZES
    count, base_offset, base_timestamp, append_time = base
    at = start = expected = 0  # deltas are in their zigzag form: twice the number
    try:
        for _ in repeat(None, count):
            byte = payload[at]
            if byte < 0x80:
                at += 1
                end = at + sizes[byte]
            elif (high := payload[at + 1]) < 0x80:
                at += 2
                end = at + sizes[byte] + (high << 6)
            else:
                size, at = read_varint(payload, at)
                end = at + size
            byte = payload[at + 1]
            if byte < 0x80:
                timestamp = base_timestamp + (byte >> 1 ^ -(byte & 1))
                at += 2
            else:
                since, at = read_varlong(payload, at + 1)
                timestamp = base_timestamp + since
                end = end if abs(since) < _INT64_LIMIT >> 1 else -1
            delta = payload[at]
            if delta < 0x80:
                at += 1
            elif (high := payload[at + 1]) < 0x80:
                delta = delta & 0x7F | high << 7
                at += 2
            else:
                size, at = read_varint(payload, at)
                delta = size << 1
            key = value = None
            byte = payload[at]
            at += 1
            if byte != _NULL_SIZE:
                size, at = (sizes[byte], at) if byte < 0x80 else _read_size(payload, at - 1)
                key = payload[at : at + size]
                at += size
            byte = payload[at]
            at += 1
            if byte < 0x80:
                size = sizes[byte]
            elif (high := payload[at]) < 0x80:
                size = sizes[byte] + (high << 6)
                at += 1
            else:
                size, at = _read_size(payload, at - 1)
            if byte != _NULL_SIZE:
                value = payload[at : at + size]
                at += size
            headers = () if not payload[at] else _read_headers(payload, at, start, end)
            if (at + 1 != end and not headers) or (delta != expected and (delta < expected or delta & 1)):
                break
            stamp = timestamp if append_time is None else append_time
            # With a star in it, it would be a list first.
            add(new(kind, (base_offset + (delta >> 1), stamp, key, value, headers) + common))  # noqa: RUF005
            expected = delta + 2
            start = at = end
    except (IndexError, ValueError):
        pass
    return start, (expected >> 1) - 1


def _read_size(payload: bytes, position: int) -> tuple[int, int]:
    size, position = read_varint(payload, position)
    if size < 0:
        raise ValueError(f"a field of {size} bytes")
    return size, position


def _fields(payload: bytes, base: RecordBase, span: RecordSpan) -> Record:
    delta, timestamp_delta, key, value_start, value_end, start, _, end = span
    timestamp = base.timestamp + timestamp_delta if base.append_time is None else base.append_time
    if not -_INT64_LIMIT <= timestamp < _INT64_LIMIT:
        raise CorruptRecord(f"record at byte {start}: timestamp {timestamp} has more than 64 bits")
    headers: Headers = ()
    if value_end + 1 != end or payload[value_end]:
        headers = _read_headers(payload, value_end, start, end)
    value = None if value_start < 0 else payload[value_start:value_end]
    return Record(base.offset + delta, timestamp, key, value, headers)


class RecordScan:
    """A walk through a payload, as many records at a time as the caller has time for."""

    __slots__ = ("_payload", "_position", "_previous", "remaining")

    def __init__(self, payload: Buffer, count: int) -> None:
        """Raises CorruptRecord if so many records cannot be in there. Keys are of the type that a slice of `payload`
        has."""
        if count < 0 or count * MIN_RECORD_BYTES > len(payload):
            raise CorruptRecord(f"{count} records do not fit in {len(payload)} bytes")
        self._payload = cast(bytes, payload)
        self._position = 0
        self._previous = -1
        self.remaining = count
        """How many records are still to come."""

    def skip(self, count: int, position: int, previous: int) -> None:
        """Go on at `position`, behind `count` records, the last of which has the offset delta `previous`."""
        self.remaining -= count
        self._position, self._previous = position, previous

    def take(self, limit: int) -> list[RecordSpan]:
        """The next `limit` records or fewer: keys are read, values and headers stepped over.

        Raises CorruptRecord as `decode_records` does, but does not look into headers.
        """
        payload, position, previous = self._payload, self._position, self._previous
        size = len(payload)
        spans: list[RecordSpan] = []
        count = min(limit, self.remaining)
        start = position
        try:
            for _ in range(count):
                # Numbers of one and two bytes are read here: calls would cost more than the reading.
                start = position
                byte = payload[position]
                if byte < 0x80:
                    length, position = (byte >> 1) ^ -(byte & 1), position + 1
                elif payload[position + 1] < 0x80:
                    raw = byte & 0x7F | payload[position + 1] << 7
                    length, position = (raw >> 1) ^ -(raw & 1), position + 2
                else:
                    length, position = read_varint(payload, position)
                end = position + length
                if length < _MIN_BODY_BYTES or end > size:
                    raise ValueError(f"{length} bytes long where {size - position} are left")
                position += 1
                byte = payload[position]
                if byte < 0x80:
                    timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
                else:
                    timestamp_delta, position = read_varlong(payload, position)
                tail = position
                byte = payload[position]
                if byte < 0x80:
                    delta, position = (byte >> 1) ^ -(byte & 1), position + 1
                elif payload[position + 1] < 0x80:
                    raw = byte & 0x7F | payload[position + 1] << 7
                    delta, position = (raw >> 1) ^ -(raw & 1), position + 2
                else:
                    delta, position = read_varint(payload, position)
                if delta <= previous:
                    raise ValueError(f"offset delta {delta} after {previous}")
                previous = delta
                key, position = _read_bytes(payload, position, end)
                byte = payload[position]
                if byte < 0x80:
                    value_size, position = (byte >> 1) ^ -(byte & 1), position + 1
                elif payload[position + 1] < 0x80:
                    raw = byte & 0x7F | payload[position + 1] << 7
                    value_size, position = (raw >> 1) ^ -(raw & 1), position + 2
                else:
                    value_size, position = read_varint(payload, position)
                if value_size < -1 or position >= end or position + value_size >= end:
                    raise ValueError(f"a value of {value_size} bytes does not fit in it")
                value_start = position if value_size >= 0 else -1
                position += max(value_size, 0)
                spans.append((delta, timestamp_delta, key, value_start, position, start, tail, end))
                position = end
        except (IndexError, ValueError) as error:
            raise CorruptRecord(f"record at byte {start}: {error}") from error
        self._position, self._previous = position, previous
        self.remaining -= count
        if self.remaining == 0 and position != size:
            raise CorruptRecord(f"{size - position} bytes after the last record")
        return spans


def scan_records(payload: bytes, count: int) -> list[RecordSpan]:
    """All records of a payload as spans, in order. Raises CorruptRecord."""
    return RecordScan(payload, count).take(count)


def check_headers(payload: Buffer, spans: Iterable[RecordSpan]) -> None:
    """That headers fill their records, which a scan steps over. Raises CorruptRecord."""
    for _, _, _, _, at, start, _, end in spans:
        if at + 1 != end or payload[at]:
            part = bytes(payload[at:end])
            _read_headers(part, 0, start, len(part))


def rebase_records(payload: bytes, spans: Iterable[RecordSpan], timestamp_shift: int) -> bytes:
    """The records at `spans` copied into a new payload, `timestamp_shift` ms added to each timestamp delta."""
    if timestamp_shift == 0:
        return b"".join([payload[start:end] for *_, start, _, end in spans])
    parts: list[bytes] = []
    for _, timestamp_delta, *_, tail, end in spans:
        delta = encode_varint(timestamp_delta + timestamp_shift)
        parts += (encode_varint(1 + len(delta) + end - tail), b"\x00", delta, payload[tail:end])
    return b"".join(parts)


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    byte = payload[position]
    if byte < 0x80:
        size, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        size, position = read_varint(payload, position)
    if size < 0:
        if size != -1:
            raise ValueError(f"a field of {size} bytes")
        return None, position
    stop = position + size
    if stop > end:
        raise ValueError(f"a field of {size} bytes where {end - position} are left")
    return payload[position:stop], stop


def _read_headers(payload: bytes, position: int, start: int, end: int) -> Headers:
    """The headers at `position` of the record at `start`, which must fill it. Raises CorruptRecord."""
    try:
        count, position = read_varint(payload, position)
        if count < 0 or count * 2 > end - position:
            raise ValueError(f"{count} headers where {end - position} bytes are left")
        headers = []
        for _ in range(count):
            name, position = _read_bytes(payload, position, end)
            if name is None:
                raise ValueError("a header without a name")
            value, position = _read_bytes(payload, position, end)
            headers.append((name.decode("utf-8", _HEADER_TEXT_ERRORS), value))
    except (IndexError, ValueError) as error:
        raise CorruptRecord(f"record at byte {start}: {error}") from error
    if position != end:
        raise CorruptRecord(f"record at byte {start}: {end - position} bytes too many in it")
    return tuple(headers)
