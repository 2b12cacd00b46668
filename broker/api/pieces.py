"""A response with thousands of parts, encoded some at a time: nobody else waits for all of them."""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.wire.codec import encode
from raftlog.wire.schema import Message
from raftlog.wire.varint import encode_unsigned_varint

_THROTTLE_BYTES = 4


class Pieces:
    """The body of a response that consists of a throttle time and one array."""

    def __init__(self, context: RequestContext) -> None:
        api = context.api
        self._context = context
        self._is_flexible = api.flexible_from is not None and context.api_version >= api.flexible_from
        self._end = b"\x00" if self._is_flexible else b""
        self._count = 0
        self._pieces: list[bytes] = []

    def add(self, response: Message, count: int) -> None:
        """The next `count` parts, as a response of their own."""
        whole = encode(response, self._context.api_version)
        start = _THROTTLE_BYTES + len(self._length(count))
        self._pieces.append(whole[start : len(whole) - len(self._end)])
        self._count += count
        self._context.services.counts.count_errors(self._context.api.key, response)

    def body(self) -> bytes:
        """The whole."""
        return b"".join((bytes(_THROTTLE_BYTES), self._length(self._count), *self._pieces, self._end))

    def _length(self, count: int) -> bytes:
        return encode_unsigned_varint(count + 1) if self._is_flexible else count.to_bytes(4, "big")
