"""Fetch (key 1), v4 to v18.

Long polls, sessions (KIP-227, v7), leader epoch checks (KIP-320, v9), closest replica (KIP-392, v11), diverging
epochs (KIP-595, v12), topic ids (KIP-516, v13), broker epochs of followers (KIP-903, v15), where the leader is now
(KIP-951, v16). Record batches go out by sendfile, as they lie in the log.

There is one short cut: the poll of an idle consumer, which says the same again (`RepeatedPoll`).
"""

from __future__ import annotations

from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, Any

from raftlog.broker.api.context import RawRequest, RequestContext, Services
from raftlog.broker.api.pace import ENTRIES_PER_TURN, Pace, in_parts, wait_for
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.fetch.session import INITIAL_EPOCH, NO_SESSION, FetchSession
from raftlog.broker.runtime.fetching import READS_PER_TURN
from raftlog.broker.runtime.partition_read import FetchParams, PartitionRead
from raftlog.broker.server.limits import REMEMBERED_POLL_BYTES_MAX, REQUEST_ENTRIES_MAX
from raftlog.wire.apis import ApiKey
from raftlog.wire.codec import decode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.fetch_reply import encode_fetch_reply, fetch_reply_in_steps
from raftlog.wire.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Generator, Sequence

    from raftlog.broker.api.leader_hints import NodeAddress
    from raftlog.broker.core.connection.connection import Connection
    from raftlog.broker.core.connection.reply import Piece
    from raftlog.broker.runtime.fetching import DelayedFetch, FetchService
    from raftlog.wire.ids import BrokerId

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
    if session.is_follower:
        _watch_follower(fetches, raw.connection, session, request)
    in_session = session.session_id != NO_SESSION and request.session_epoch > INITIAL_EPOCH
    params = _params(fetches, request, in_session=in_session)
    reply = FetchReply(services, raw.connection, raw.version, raw.correlation_id, session.session_id)
    delayed = fetches.fetch(session, params, reply)
    if delayed is None:
        return
    reply.delayed = delayed
    reply.has_place = True
    raw.connection.add_place(reply)
    if in_session and not request.topics and not request.forgotten_topics_data:
        RepeatedPoll.expect(raw, session, reply, delayed)


def _watch_follower(
    fetches: FetchService, connection: Connection, session: FetchSession, request: FetchRequest
) -> None:
    if request.session_epoch == INITIAL_EPOCH:
        connection.watch_broker(partial(fetches.follower_lost, session))


def _params(fetches: FetchService, request: FetchRequest, *, in_session: bool) -> FetchParams:
    return _shared_params(
        request.max_wait_ms / 1000,
        request.min_bytes,
        min(request.max_bytes, fetches.bytes_max),
        request.isolation_level == _READ_COMMITTED,
        not in_session,
    )


def _refused_everywhere(request: FetchRequest, error: ErrorCode) -> list[PartitionRead]:
    """Before v7 an error has no other place than every partition."""
    named = FetchSession(NO_SESSION, False, 0)
    named.name_partitions(request.topics)
    return [PartitionRead(entry, error) for entry in named.partitions.values()]


# -- large requests ---------------------------------------------------------------------------------


def handle(context: RequestContext, request: FetchRequest) -> None:
    """A large request, of which everything is done in turns. What the connection asks next waits until the session has
    taken what this one names."""
    reply = FetchReply(context.services, context.connection, context.api_version, context.correlation_id, NO_SESSION)
    reply.has_place = True
    context.replace_place(reply)
    context.connection.hold()
    context.in_turns(_serve_in_turns(context, request, reply), lambda _: None)


async def _serve_in_turns(context: RequestContext, request: FetchRequest, reply: FetchReply) -> None:
    """Ends when the answer is made, or waits for more to say: of each address one is worked on at a time."""
    fetches, version, connection = context.services.fetches, context.api_version, context.connection
    session: FetchSession | ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    if request.isolation_level in _ISOLATION_LEVELS:
        session = fetches.open(request, version)
    if not isinstance(session, ErrorCode):
        if session.is_follower and connection.closed:
            fetches.follower_lost(session)
        elif session.is_follower:
            _watch_follower(fetches, connection, session, request)
        session = await _changed_in_turns(fetches, session, request)
        # Else the collector walks it, with all that is read.
        request.topics = []
    connection.release()
    reply.at_rest = at_rest = context.services.loop.create_future()
    if isinstance(session, ErrorCode):
        context.services.counts.count_error(ApiKey.FETCH, session)
        reply.send(_refused_everywhere(request, session) if version < _SESSIONS_SINCE else [], session)
    elif connection.closed:
        fetches.end_request(session)
        return
    else:
        reply.session_id = session.session_id
        in_session = session.session_id != NO_SESSION and request.session_epoch > INITIAL_EPOCH
        reply.delayed = fetches.fetch(session, _params(fetches, request, in_session=in_session), reply)
        if reply.delayed is not None and not reply.delayed.is_reading:
            return
    await wait_for(at_rest)


async def _changed_in_turns(
    fetches: FetchService, session: FetchSession, request: FetchRequest
) -> FetchSession | ErrorCode:
    """The session with all that the request names; or an error if it was closed meanwhile."""
    pace = Pace()
    for topics in in_parts(request.topics, ENTRIES_PER_TURN):
        await pace.spend(ENTRIES_PER_TURN)
        if not fetches.sessions.is_open(session):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        fetches.change(session, topics)
    for forgotten in in_parts(request.forgotten_topics_data, ENTRIES_PER_TURN):
        await pace.spend(ENTRIES_PER_TURN)
        if not fetches.sessions.is_open(session):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        fetches.change(session, (), forgotten)
    return session


class FetchReply(PendingReply):
    """Turns what was read into the reply, now or in the place that it is itself; what is very much, in turns."""

    __slots__ = (
        "_client",
        "_services",
        "_version",
        "at_rest",
        "correlation_id",
        "delayed",
        "has_place",
        "session_id",
    )

    def __init__(
        self, services: Services, connection: Connection, version: int, correlation_id: int, session_id: int
    ) -> None:
        super().__init__(connection)
        self._services = services
        self._client = connection
        self._version = version
        self.session_id = session_id
        self.correlation_id = correlation_id
        # Else the reply goes out at once.
        self.has_place = False
        self.delayed: DelayedFetch | None = None
        # Done when it is made, or waits for more to say, or is not needed any more.
        self.at_rest: Future[None] | None = None

    def send(self, reads: list[PartitionRead], error: ErrorCode = _NONE) -> None:
        """Send what was read. `error`: why nothing was."""
        if len(reads) > READS_PER_TURN:
            self._go_on(self._steps(reads, error))
            return
        nodes: Sequence[NodeAddress] = ()
        if reads:
            leaders = self._prepare(reads)
            if leaders:
                nodes = self._addresses_of(leaders)
        version, number = self._version, self.correlation_id
        pieces = encode_fetch_reply(version, number, error, self.session_id, reads, nodes=nodes)
        if self.has_place:
            self.complete(pieces)
        else:
            self._client.reply(pieces)

    def waits(self) -> None:
        """See Reply."""
        self._rest()

    def complete(self, pieces: Sequence[Piece]) -> None:
        """See PendingReply."""
        super().complete(pieces)
        self._rest()

    def _rest(self) -> None:
        at_rest, self.at_rest = self.at_rest, None
        if at_rest is not None:
            at_rest.set_result(None)

    def _go_on(self, steps: Generator[None, None, list[Any]]) -> None:
        if self._client.closed:
            return
        try:
            next(steps)
        except StopIteration as made:
            self.complete(made.value)
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            # Whoever calls may have nothing to do with this client.
            self._client.fail(error)
        else:
            self._client.later(partial(self._go_on, steps))

    def _steps(self, reads: list[PartitionRead], error: ErrorCode) -> Generator[None, None, list[Any]]:
        leaders: list[BrokerId] = []
        for start in range(0, len(reads), READS_PER_TURN):
            together = reads[start : start + READS_PER_TURN]
            leaders += self._prepare(together)
            reads[start : start + READS_PER_TURN] = together
            yield
        nodes = self._addresses_of(leaders) if leaders else ()
        version, number = self._version, self.correlation_id
        return (
            yield from fetch_reply_in_steps(
                version, number, error, self.session_id, reads, step=READS_PER_TURN, nodes=nodes
            )
        )

    def _prepare(self, reads: list[PartitionRead]) -> list[BrokerId]:
        """Read what is short, count errors, find who leads instead of us: the brokers."""
        for place, read in enumerate(reads):
            try:
                _read_if_short(read)
            except OSError as failure:
                reads[place] = self._services.fetches.read_failed(read, failure)
        errors = [read.error for read in reads if read.error is not _NONE]
        for error in errors:
            self._services.counts.count_error(ApiKey.FETCH, error)
        if errors and self._version >= _LEADERS_SINCE and not _LED_ELSEWHERE.isdisjoint(errors):
            return self._find_leaders(reads)
        return []

    def _find_leaders(self, reads: list[PartitionRead]) -> list[BrokerId]:
        from raftlog.broker.api.leader_hints import leader_of

        image = self._services.controller.image
        leaders = []
        for read in reads:
            if read.error in _LED_ELSEWHERE:
                topic = read.entry.topic
                read.leader = leader_of(image, topic.name, topic.topic_id, read.entry.index)
                leaders.append(read.leader[0])
        return leaders

    def _addresses_of(self, leaders: list[BrokerId]) -> list[NodeAddress]:
        from raftlog.broker.api.leader_hints import addresses_of

        return addresses_of(self._services.controller.image, self._client, leaders)

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
        self._rest()


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
