"""Records inside a batch of format version 2: one varint-framed entry each (KIP-98).

Every length is checked against its record and every record against the payload, so a lying number ends in
CorruptRecord and never in a slice that is silently short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from raftlog.wire.varint import encode_varint, read_varint, read_varlong

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

MIN_RECORD_BYTES = 7
"""The smallest record there is: seven fields of one byte, key and value null. Bounds how many a payload can
hold."""

_MIN_BODY_BYTES = MIN_RECORD_BYTES - 1
_INT64_LIMIT = 1 << 63
_SPANS_AT_A_TIME = 1024
_NULL = b"\x01"
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


def decode_records(
    payload: bytes, *, count: int, base_offset: int, base_timestamp: int, append_time: int | None = None
) -> list[Record]:
    """The `count` records of a payload, which must fill it exactly.

    With `append_time` every record carries that timestamp (message.timestamp.type=LogAppendTime). Raises
    CorruptRecord.
    """
    records: list[Record] = []
    add = records.append
    for delta, timestamp_delta, key, value_start, value_end, start, _, end in _all_spans(payload, count):
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -_INT64_LIMIT <= timestamp < _INT64_LIMIT:
            raise CorruptRecord(f"record at byte {start}: timestamp {timestamp} has more than 64 bits")
        headers: Headers = ()
        if value_end + 1 != end or payload[value_end]:
            headers = _read_headers(payload, value_end, start, end)
        value = None if value_start < 0 else payload[value_start:value_end]
        add(Record(base_offset + delta, timestamp, key, value, headers))
    return records


def _all_spans(payload: bytes, count: int) -> Iterator[RecordSpan]:
    """Some at a time: a payload can hold many more records than there is memory for their spans beside them."""
    scan = RecordScan(payload, count)
    yield from scan.take(_SPANS_AT_A_TIME)
    while scan.remaining:
        yield from scan.take(_SPANS_AT_A_TIME)


class RecordScan:
    """A walk through a payload, as many records at a time as the caller has time for."""

    __slots__ = ("_payload", "_position", "_previous", "remaining")

    def __init__(self, payload: bytes, count: int) -> None:
        """Raises CorruptRecord if so many records cannot be in there."""
        if count < 0 or count * MIN_RECORD_BYTES > len(payload):
            raise CorruptRecord(f"{count} records do not fit in {len(payload)} bytes")
        self._payload = payload
        self._position = 0
        self._previous = -1
        self.remaining = count
        """How many records are still to come."""

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
