"""Records inside a batch of format version 2: one varint-framed entry each (KIP-98).

Knows the bytes of a record. Refuses to know the batch around it (`batch.py`) and compression: it is given the
plain payload and what the header says about it.

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


class RecordSpan(NamedTuple):
    """Where one record lies in a payload, for code that moves records without unpacking them.

    The record is `payload[start:end]`; behind its length, attributes and timestamp delta it goes on at
    `tail`.
    """

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool
    start: int
    tail: int
    end: int


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
    for delta, timestamp_delta, start, key_at, end in _frames(payload, count):
        try:
            key, position = _read_bytes(payload, key_at, end)
            value, position = _read_bytes(payload, position, end)
            headers: Headers = ()
            if payload[position] == 0:
                position += 1
            else:
                headers, position = _read_headers(payload, position, end)
        except (IndexError, ValueError) as error:
            raise CorruptRecord(f"record at byte {start}: {error}") from error
        if position != end:
            raise CorruptRecord(f"record at byte {start}: {end - position} bytes too many in it")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -_INT64_LIMIT <= timestamp < _INT64_LIMIT:
            raise CorruptRecord(f"record at byte {start}: timestamp {timestamp} has more than 64 bits")
        add(Record(base_offset + delta, timestamp, key, value, headers))
    return records


def scan_records(payload: bytes, count: int) -> Iterator[RecordSpan]:
    """The records of a payload as spans, in order: keys are read, values and headers only stepped over.

    Raises CorruptRecord as `decode_records` does, but does not look into headers.
    """
    for delta, timestamp_delta, start, key_at, end in _frames(payload, count):
        try:
            key, position = _read_bytes(payload, key_at, end)
            value_size, position = read_varint(payload, position)
        except (IndexError, ValueError) as error:
            raise CorruptRecord(f"record at byte {start}: {error}") from error
        if value_size < -1 or position + max(0, value_size) >= end:
            raise CorruptRecord(f"record at byte {start}: a value of {value_size} bytes does not fit in it")
        yield RecordSpan(delta, timestamp_delta, key, value_size < 0, start, _delta_at(payload, start), end)


def rebase_records(payload: bytes, spans: Iterable[RecordSpan], timestamp_shift: int) -> bytes:
    """The records at `spans` copied into a new payload, `timestamp_shift` ms added to each timestamp
    delta."""
    parts: list[bytes] = []
    for span in spans:
        if timestamp_shift == 0:
            parts.append(payload[span.start : span.end])
            continue
        delta = encode_varint(span.timestamp_delta + timestamp_shift)
        parts += (
            encode_varint(1 + len(delta) + span.end - span.tail),
            b"\x00",
            delta,
            payload[span.tail : span.end],
        )
    return b"".join(parts)


def _frames(payload: bytes, count: int) -> Iterator[tuple[int, int, int, int, int]]:
    """(offset delta, timestamp delta, record start, key position, record end) of each record.

    The one place that frames records: lengths, order of offsets, and that nothing is left over.
    """
    if count < 0 or count * MIN_RECORD_BYTES > len(payload):
        raise CorruptRecord(f"{count} records do not fit in {len(payload)} bytes")
    position, size = 0, len(payload)
    previous = -1
    for _ in range(count):
        start = position
        try:
            byte = payload[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = read_varint(payload, position)
            end = position + length
            if length < _MIN_BODY_BYTES or end > size:
                raise CorruptRecord(
                    f"record at byte {start}: {length} bytes long where {size - position} are left"
                )
            position += 1
            byte = payload[position]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                timestamp_delta, position = read_varlong(payload, position)
            byte = payload[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = read_varint(payload, position)
        except CorruptRecord:
            raise
        except (IndexError, ValueError) as error:
            raise CorruptRecord(f"record at byte {start}: {error}") from error
        if delta <= previous:
            raise CorruptRecord(f"record at byte {start}: offset delta {delta} after {previous}")
        previous = delta
        yield delta, timestamp_delta, start, position, end
        position = end
    if position != size:
        raise CorruptRecord(f"{size - position} bytes after the last of {count} records")


def _delta_at(payload: bytes, start: int) -> int:
    """Position of the offset delta in the record at `start`, whose framing was checked before."""
    position = read_varint(payload, start)[1] + 1
    return read_varlong(payload, position)[1]


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


def _read_headers(payload: bytes, position: int, end: int) -> tuple[Headers, int]:
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
    return tuple(headers), position
