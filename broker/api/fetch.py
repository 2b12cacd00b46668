"""Fetch (key 1), v4 to v18.

Long polls, sessions (KIP-227, v7), leader epoch checks (KIP-320, v9), closest replica (KIP-392, v11), diverging
epochs (KIP-595, v12), topic ids (KIP-516, v13), broker epochs of followers (KIP-903, v15), where the leader is now
(KIP-951, v16). Record batches go out by sendfile, as they lie in the log.

There is one short cut: the poll of an idle consumer, which says the same again (`RepeatedPoll`).
"""

from __future__ import annotations

from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RawRequest, Services
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.fetch.session import INITIAL_EPOCH, NO_SESSION, FetchSession
from raftlog.broker.runtime.partition_read import FetchParams, PartitionRead
from raftlog.broker.server.limits import DECODED_REQUEST_BYTES_MAX, REMEMBERED_POLL_BYTES_MAX, REQUEST_ENTRIES_MAX
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.fetch_reply import encode_fetch_reply
from raftlog.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftlog.broker.api.leader_hints import NodeAddress
    from raftlog.broker.runtime.fetching import DelayedFetch

_READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, _READ_COMMITTED)
# A range that is not longer is read and sent with its frame in one call, which is cheaper than sendfile.
_INLINE_BYTES_MAX = 16 * 1024

_NONE = ErrorCode.NONE
_LED_ELSEWHERE = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
_SESSIONS_SINCE = 7
_NO_REPLICA_ID_SINCE = 15
_LEADERS_SINCE = 16

# Of every frame: length, API key and version, before the correlation id.
_BEFORE_CORRELATION_ID, _INT32_BYTES = 8, 4
# Before the session's epoch: max wait, min bytes, max bytes, isolation level, session id. Up to v14 the replica id too.
_BEFORE_EPOCH = Struct(">iiibi").size

_shared_params = lru_cache(maxsize=256)(FetchParams)  # most clients ask on the same ones


def serve(services: Services, raw: RawRequest) -> None:
    """Answer, or delay until there is enough."""
    if len(raw.frame) > DECODED_REQUEST_BYTES_MAX:
        raise RemoteProtocolError(f"Fetch: a request of {len(raw.frame)} bytes, above {DECODED_REQUEST_BYTES_MAX}")
    request = decode(
        FetchRequest, raw.version, raw.frame, raw.offset, exact=False, elements_max=REQUEST_ENTRIES_MAX
    )
    fetches = services.fetches
    session: FetchSession | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    if request.isolation_level in _ISOLATION_LEVELS:
        session = fetches.apply(request, raw.version)
    if isinstance(session, ErrorCode):
        services.counts.count_error(ApiKey.FETCH, session)
        reads = _refused_everywhere(request, session) if raw.version < _SESSIONS_SINCE else []
        raw.connection.reply(encode_fetch_reply(raw.version, raw.correlation_id, session, NO_SESSION, reads))
        return
    if session.is_follower and request.session_epoch == INITIAL_EPOCH:
        raw.connection.watch_broker(partial(fetches.follower_lost, session))
    in_session = session.session_id != NO_SESSION and request.session_epoch > INITIAL_EPOCH
    params = _shared_params(
        request.max_wait_ms / 1000,
        request.min_bytes,
        min(request.max_bytes, fetches.bytes_max),
        request.isolation_level == _READ_COMMITTED,
        not in_session,
    )
    reply = FetchReply(services, raw, session.session_id)
    delayed = fetches.fetch(session, params, reply.send)
    if delayed is None:
        return
    reply.delayed = delayed
    raw.connection.add_place(reply)
    if in_session and not request.topics and not request.forgotten_topics_data:
        RepeatedPoll.expect(raw, session, reply, delayed)


def _refused_everywhere(request: FetchRequest, error: ErrorCode) -> list[PartitionRead]:
    """Before v7 an error has no other place than every partition."""
    named = FetchSession(NO_SESSION, False, 0)
    named.name_partitions(request)
    return [PartitionRead(entry, error) for entry in named.partitions.values()]


class FetchReply(PendingReply):
    """Turns what was read into the reply, now or in the place that it is itself."""

    __slots__ = ("_client", "_services", "_session_id", "_version", "correlation_id", "delayed")

    def __init__(self, services: Services, raw: RawRequest, session_id: int) -> None:
        super().__init__(raw.connection)
        self._services = services
        self._client = raw.connection
        self._version = raw.version
        self._session_id = session_id
        self.correlation_id = raw.correlation_id
        # None while the request is being served: then the reply goes out at once.
        self.delayed: DelayedFetch | None = None

    def send(self, reads: list[PartitionRead]) -> None:
        """Send what was read."""
        nodes: Sequence[NodeAddress] = ()
        if reads:
            for place, read in enumerate(reads):
                try:
                    _read_if_short(read)
                except OSError as failure:
                    reads[place] = self._services.fetches.read_failed(read, failure)
            errors = [read.error for read in reads if read.error is not _NONE]
            for error in errors:
                self._services.counts.count_error(ApiKey.FETCH, error)
            if errors and self._version >= _LEADERS_SINCE and not _LED_ELSEWHERE.isdisjoint(errors):
                nodes = self._find_leaders(reads)
        pieces = encode_fetch_reply(self._version, self.correlation_id, _NONE, self._session_id, reads, nodes=nodes)
        if self.delayed is None:
            self._client.reply(pieces)
        else:
            self.complete(pieces)

    def _find_leaders(self, reads: list[PartitionRead]) -> list[NodeAddress]:
        from raftlog.broker.api.leader_hints import addresses_of, leader_of

        image = self._services.controller.image
        leaders = []
        for read in reads:
            if read.error in _LED_ELSEWHERE:
                topic = read.entry.topic
                read.leader = leader_of(image, topic.name, topic.topic_id, read.entry.index)
                leaders.append(read.leader[0])
        return addresses_of(image, self._client, leaders)

    def complete_early(self) -> None:
        """See PendingReply. Metadata, offsets and coordinators that a consumer asks for while it polls for records
        would otherwise reach it only when the poll is over, half a second later with most clients."""
        if self.delayed is not None:
            self.delayed.complete_early()

    def abandon(self) -> None:
        """The connection is gone."""
        super().abandon()
        if self.delayed is not None:
            self.delayed.cancel()


def _read_if_short(read: PartitionRead) -> None:
    """Raises OSError."""
    records = read.records
    if read.size <= _INLINE_BYTES_MAX and records is not None and not isinstance(records, bytes):
        data = records.read()
        if len(data) == read.size:
            read.records = data


@lru_cache(maxsize=256)
def _poll_layout(terms_length: int, rest_length: int) -> Struct:
    """An idle consumer's request: what is before its correlation id, that, what is before its session epoch, that, and
    the rest."""
    return Struct(f">{_BEFORE_CORRELATION_ID}si{terms_length}si{rest_length}s")


class RepeatedPoll:
    """The RepeatMatcher of a consumer that is idle: all that it says is "the same as before", so that the next request
    of its connection is probably this one again but for correlation id and session epoch. One that is waits again with
    the objects of the last one.
    """

    __slots__ = ("_delayed", "_expected", "_layout", "_reply", "_service", "_session")

    def __init__(
        self, reply: FetchReply, delayed: DelayedFetch, session: FetchSession, layout: Struct, expected: bytes
    ) -> None:
        self._reply = reply
        self._delayed = delayed
        self._session = session
        self._layout = layout
        self._expected = expected

    @classmethod
    def expect(cls, raw: RawRequest, session: FetchSession, reply: FetchReply, delayed: DelayedFetch) -> None:
        """The next request of the connection may be this one again."""
        size = _INT32_BYTES + len(raw.frame)
        if size > REMEMBERED_POLL_BYTES_MAX:
            return
        epoch_at = _INT32_BYTES + raw.offset + _BEFORE_EPOCH
        if raw.version < _NO_REPLICA_ID_SINCE:
            epoch_at += _INT32_BYTES
        terms_at = _BEFORE_CORRELATION_ID + _INT32_BYTES
        layout = _poll_layout(epoch_at - terms_at, size - epoch_at - _INT32_BYTES)
        before, _, terms, _, rest = layout.unpack(len(raw.frame).to_bytes(_INT32_BYTES, "big") + raw.frame)
        raw.connection.repeat_matcher = cls(reply, delayed, session, layout, before + terms + rest)

    def serve_repeat(self, received: memoryview, count: int) -> PendingReply | None:
        """See RepeatMatcher."""
        layout = self._layout
        if count != layout.size:
            return None
        before, correlation_id, terms, epoch, rest = layout.unpack_from(received)
        if epoch != self._session.epoch or before + terms + rest != self._expected or not self._delayed.repeat():
            return None
        reply = self._reply
        reply.correlation_id = correlation_id
        reply.pieces = None
        return reply

    def disconnected(self) -> None:
        """See RepeatMatcher."""
        self._delayed.leave()
