"""Produce requests of one batch for one partition, known by their beginning: what all that are alike share.

A producer sends many such requests to a topic. All that lies before the partition's number is the same in each (the
transactional id, acks, the time-out, the topic), and so is the response but for its numbers. Knowing them again takes a
quarter off what a small produce request costs. Templates hold nothing of the connection they came from, so all share
one cache.
"""

from __future__ import annotations

from struct import Struct

from raftlog.broker.api.produce_encoding import (
    FLEXIBLE_FROM,
    IDS_FROM,
    ParsedProduce,
    encode_count,
    encode_outcome,
    encode_partition,
)
from raftlog.broker.core.connection.reply import frame
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.server.limits import PRODUCE_TEMPLATES_MAX
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.varint import finish_unsigned_varint

_INT32 = Struct(">i")
_INDEX_LENGTH = Struct(">ii")
# index, error, base offset, log append time, log start offset (v5+)
_NUMBERS_V5 = Struct(">ihqqq")
_NUMBERS_V3 = Struct(">ihqq")
# Where a response has its correlation id: behind its size.
_CORRELATION_AT = 4
# What follows the batch of a flexible request: no tagged fields of the partition, the topic and the request.
_NO_TAGS = b"\x00\x00\x00"
# When the cache is full, only one unknown request in so many takes the oldest template's place: a client with more
# topics than there is room for must not pay for each request, and would find nothing if it did.
_LEARNED_WHEN_FULL = 16


class ProduceTemplate:
    """What requests with the same beginning, up to the partition's number, share."""

    __slots__ = ("_numbers_at", "_response", "acks", "key", "timeout_ms", "transactional_id", "version")

    def __init__(self, version: int, transactional_id: bytes | None, acks: int, timeout_ms: int, key: bytes) -> None:
        self.version, self.acks, self.timeout_ms, self.key = version, acks, timeout_ms, key
        self.transactional_id = transactional_id
        done = AppendResult(ErrorCode.NONE, 0, 0, 0, 0)
        flexible = version >= FLEXIBLE_FROM
        (whole,) = frame(0, encode_outcome([(key, [(0, done)])], version), flexible=flexible)
        assert isinstance(whole, bytes)
        self._response = whole
        # Behind the partition: the throttle time, and the tags of the topic and of the response.
        behind = 6 if flexible else 4
        self._numbers_at = len(whole) - behind - len(encode_partition(0, done, version))

    def response(self, correlation_id: int, index: int, done: AppendResult) -> bytearray:
        """The whole response that acknowledges what was appended."""
        response = bytearray(self._response)
        _INT32.pack_into(response, _CORRELATION_AT, correlation_id)
        at, base_offset, time_ms = self._numbers_at, done.base_offset, done.log_append_time_ms
        if self.version >= 5:
            _NUMBERS_V5.pack_into(response, at, index, 0, base_offset, time_ms, done.log_start_offset)
        else:
            _NUMBERS_V3.pack_into(response, at, index, 0, base_offset, time_ms)
        return response


class TemplateCache:
    """The templates of a broker, by version and beginning; at most PRODUCE_TEMPLATES_MAX."""

    __slots__ = ("_count", "_templates", "_unknown")

    def __init__(self) -> None:
        self._templates: list[dict[bytes, ProduceTemplate]] = [{} for _ in range(APIS[ApiKey.PRODUCE].max_version + 1)]
        self._count = 0
        self._unknown = 0

    def find(self, request: memoryview, offset: int, version: int) -> tuple[ProduceTemplate, int, memoryview] | None:
        """The template, the partition's number and its records, of a request whose body begins at `offset`.

        None when there is no template, or anything unusual in the request: that is the parser's. Raises as the parser.
        """
        # Where the partition's number is, if the request has one topic with one partition; else anywhere.
        try:
            if version >= FLEXIBLE_FROM:
                at = offset + (request[offset] or 1)  # transactional id; then acks, time-out, topics, topic, partitions
                at += 24 if version >= IDS_FROM else 8 + request[at + 7]
            else:
                # A null transactional id has the length -1; no topic's name is longer than 249 bytes.
                at = offset + (2 if request[offset] else 2 + request[offset + 1])
                at += 16 + request[at + 11]
        except IndexError:
            return None
        template = self._templates[version].get(request[offset:at].tobytes())
        if template is None:
            return None
        if version >= FLEXIBLE_FROM:
            (index,) = _INT32.unpack_from(request, at)
            size, at = request[at + 4], at + 5
            if size > 127:
                size, at = finish_unsigned_varint(request, at, size)
            end = at + size - 1
            return (template, index, request[at:end]) if size and request[end:] == _NO_TAGS else None
        index, size = _INDEX_LENGTH.unpack_from(request, at)
        at += _INDEX_LENGTH.size
        return (template, index, request[at:]) if size == len(request) - at else None

    def learn(self, request: memoryview, offset: int, version: int, parsed: ParsedProduce) -> None:
        """Make a template of a request that was parsed and served, if others may be like it."""
        transactional_id, acks, timeout_ms, topics = parsed
        if len(topics) != 1 or len(topics[0][1]) != 1:
            return
        key, [(index, records)] = topics[0]
        if records is None or not self._has_room():
            return
        flexible = version >= FLEXIBLE_FROM
        length = encode_count(len(records), flexible)
        start_end = len(request) - (len(_NO_TAGS) if flexible else 0) - len(records) - len(length) - _INT32.size
        start = bytes(request[offset:start_end])
        if start in self._templates[version]:
            return
        template = ProduceTemplate(version, transactional_id, acks, timeout_ms, key)
        self._templates[version][start] = template
        if self.find(request, offset, version) == (template, index, records):
            self._count += 1
        else:
            # Tagged fields, bytes behind the request, a length in more bytes than it needs: all that is the parser's.
            del self._templates[version][start]

    def _has_room(self) -> bool:
        if self._count < PRODUCE_TEMPLATES_MAX:
            return True
        self._unknown += 1
        if self._unknown % _LEARNED_WHEN_FULL:
            return False
        fullest = max(self._templates, key=len)
        del fullest[next(iter(fullest))]
        self._count -= 1
        return True
