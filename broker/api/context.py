"""What a request handler is given: the broker's services, the facts of one request, and the way to answer it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from raftlog.broker.api.pace import Pace
from raftlog.broker.api.request_metrics import RequestCounts
from raftlog.broker.core.connection.reply import EarlyReply, frame
from raftlog.broker.core.log.refused_firsts import RefusedFirsts
from raftlog.broker.runtime.failure_detector import Suspects
from raftlog.broker.server.limits import NAME_LENGTH_IN_LOGS_MAX
from raftlog.wire.apis import APIS, Api, ApiKey
from raftlog.wire.codec import decode, encode, encode_in_steps
from raftlog.wire.error_codes import error_codes
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import BrokerId
from raftlog.wire.schema import Message

if TYPE_CHECKING:
    import asyncio

    from raftlog.broker.api.produce_templates import TemplateCache
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.core.connection.connection import Connection
    from raftlog.broker.core.connection.reply import PendingReply, Piece
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.batch_checks import BatchChecks
    from raftlog.broker.runtime.broker_requests import BrokerRequests
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.runtime.fetching import FetchService
    from raftlog.broker.runtime.group_coordinator import GroupCoordinator
    from raftlog.broker.runtime.group_lag import GroupLags
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.broker.runtime.timer_wheel import TimerWheel
    from raftlog.broker.runtime.transaction_coordinator import TransactionCoordinator
    from raftlog.broker.runtime.transaction_verifier import TransactionVerifier
    from raftlog.broker.store.log_manager import LogManager

log = logging.getLogger("raftlog.dispatcher")
changes_log = logging.getLogger("raftlog.changes")

_API_VERSIONS = APIS[ApiKey.API_VERSIONS]

CHANGES_IN_A_LINE_MAX = 10
"""How many things that one request changed are named in the log."""


@dataclass(slots=True)
class Services:
    """The parts of a running broker that handlers use. One owner each; handlers hold no state of their own."""

    node_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    clock: Clock
    loop: asyncio.AbstractEventLoop
    controller: Controller
    logs: LogManager
    partitions: PartitionManager
    fetches: FetchService
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    timers: TimerWheel
    requests: BrokerRequests
    lags: GroupLags
    verifier: TransactionVerifier
    batch_checks: BatchChecks
    suspects: Suspects = field(default_factory=Suspects)
    counts: RequestCounts = field(default_factory=RequestCounts)
    # Made by the first Produce request, as is its module.
    produce_templates: TemplateCache | None = None
    refused_firsts: RefusedFirsts = field(default_factory=RefusedFirsts)
    # Requests that are answered by a coroutine; the loop itself keeps no hold of them.
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class RawRequest:
    """A request of the data path, not decoded: `frame` is valid only during the call."""

    __slots__ = ("connection", "correlation_id", "frame", "offset", "version")

    def __init__(self, connection: Connection, version: int, correlation_id: int, frame: memoryview) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.frame = frame
        # Where the body begins; set by the dispatcher.
        self.offset = 0


T = TypeVar("T")
Later: TypeAlias = Callable[[Callable[[], None]], object]
InTurns: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, Any, T]
"""Work that gives way to others now and then; see pace.py."""

Response: TypeAlias = Message | bytes
"""A response, or its body when it is encoded already."""


class RequestContext:
    """One decoded request: what is known of it, and how it is answered.

    A handler answers each request exactly once: with `respond`, before it returns or later from a callback, or by the
    result of a coroutine that it gives to `respond_with`. `advertised` is the address to tell this client about this
    broker. All calls come from the event loop's thread.
    """

    __slots__ = (
        "_is_answered",
        "_on_rest",
        "_place",
        "_under_way",
        "advertised",
        "api",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "is_large",
        "listener_name",
        "services",
        "when_early",
    )

    def __init__(
        self,
        services: Services,
        api: Api,
        *,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        listener_name: str,
        advertised: tuple[str, int],
        connection: Connection,
    ) -> None:
        self.services = services
        self.api = api
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.listener_name = listener_name
        self.advertised = advertised
        self.connection = connection
        # Its response is probably large, too, and is encoded in turns.
        self.is_large = False
        self._is_answered = False
        # Where the response will go, once the handler has returned without one.
        self._place: PendingReply | None = None
        # A handler that only waits for more to say sets it: called when a later response would wait behind this one.
        self.when_early: Callable[[], None] | None = None
        # How much work goes on in later turns; for a large request, what is called when there is no more.
        self._under_way = 0
        self._on_rest: Callable[[], None] | None = None

    @property
    def client_host(self) -> str:
        """The address that the request came from."""
        return self.connection.peer_host

    def respond(self, response: Response) -> None:
        """Answer. Raises InvariantViolation the second time."""
        if self._is_answered:
            raise InvariantViolation(f"{self.api.name}: a request was answered twice")
        self._is_answered = True
        if self._place is None:
            self.connection.reply(self._framed(self._encoded(response)))
            return
        try:
            if self.is_large and not isinstance(response, bytes):
                self.in_turns(self._encoded_in_turns(response), self._complete)
            else:
                self._complete(self._encoded(response))
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            # Whoever calls has nothing to do with this client.
            self.connection.fail(error)

    def _complete(self, body: bytes) -> None:
        assert self._place is not None
        self._place.complete(self._framed(body))

    def _encoded(self, response: Response) -> bytes:
        if isinstance(response, bytes):
            return response
        body = encode(response, self.api_version)
        self.services.counts.count_errors(self.api.key, response)
        return body

    async def _encoded_in_turns(self, response: Message) -> bytes:
        body = await encode_in_steps(response, self.api_version)
        await Pace().each(error_codes(response), partial(self.services.counts.count_error, self.api.key))
        return body

    def _framed(self, body: bytes) -> list[Piece]:
        # The ApiVersions response has header v0 in every version: the client cannot know ours yet.
        api = self.api
        is_flexible = api.flexible_from is not None and self.api_version >= api.flexible_from
        return frame(self.correlation_id, body, flexible=is_flexible and api is not _API_VERSIONS)

    def respond_with(self, work: Coroutine[Any, Any, Response]) -> None:
        """Answer with the result of a coroutine. What it raises is treated as if the handler had raised it."""
        task = self.services.loop.create_task(self._run(work))
        self.services.tasks.add(task)
        task.add_done_callback(self.services.tasks.discard)
        self._under_way += 1
        task.add_done_callback(self._ended)

    async def _run(self, work: Coroutine[Any, Any, Response]) -> None:
        try:
            self.respond(await work)
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self._failed(error)

    def in_turns(self, work: InTurns[T], done: Callable[[T], None]) -> None:
        """Call `done` with the result of a coroutine that gives way to others, or waits, as pace.py has it. It begins
        now, and ends now if it does neither. What either raises ends the connection; if the client is gone, it goes on.
        """
        self._under_way += 1
        self._go_on(work, done, self._later())

    def _go_on(self, work: InTurns[T], done: Callable[[T], None], later: Later) -> None:
        try:
            try:
                awaited = work.send(None)
            except StopIteration as ended:
                done(ended.value)
            else:
                go_on = partial(self._go_on, work, done, later)
                if awaited is None:
                    later(go_on)
                else:
                    awaited.add_done_callback(lambda _: later(go_on))
                return
        except Exception as error:  # noqa: BLE001 - sorted out in one place
            self._failed(error)
        self._ended()

    def _ended(self, _: object = None) -> None:
        self._under_way -= 1
        if not self._under_way and self._on_rest is not None:
            on_rest, self._on_rest = self._on_rest, None
            on_rest()

    def _later(self) -> Later:
        return self.services.loop.call_soon if self.connection.closed else self.connection.later

    def _failed(self, error: Exception) -> None:
        self.connection.fail(error)

    def call_at_rest(self, on_rest: Callable[[], None]) -> None:
        """Call it once no work is under way in turns: now, or when what is has ended."""
        if self._under_way:
            self._on_rest = on_rest
        else:
            on_rest()

    def handler_returned(self) -> None:
        """Keep a place for the response, if there is none yet: what the connection asks next is answered after it."""
        if self._is_answered or self.connection.closed:
            return
        if self.when_early is None:
            self._place = self.connection.reserve_place()
        else:
            self._place = EarlyReply(self.connection, self.when_early)
            self.connection.add_place(self._place)

    def replace_place(self, reply: PendingReply) -> None:
        """Once the handler of a large request was called: this reply, which it fills itself, is the response."""
        assert self._place is not None
        self._is_answered = True
        self.connection.replace_place(self._place, reply)

    @property
    def can_be_early(self) -> bool:
        """Whether `when_early` has an effect: as long as the handler has not returned."""
        return self._place is None

    def log_change(self, what: str, changed: Sequence[str]) -> None:
        """Log what this client has changed, if anything: an operator wants to know who did that."""
        if changed:
            more = len(changed) - CHANGES_IN_A_LINE_MAX
            named = ", ".join(changed[:CHANGES_IN_A_LINE_MAX]) + (f" and {more} more" if more > 0 else "")
            client_id = (self.client_id or "")[:NAME_LENGTH_IN_LOGS_MAX]
            changes_log.info("client=%s name=%r %s: %s", self.client_host, client_id, what, named)


class OwnRequest(RequestContext):
    """A request of this broker to itself (`BrokerRequests`): it came over no connection, and its response leaves none.
    A handler that is asked by brokers does not look at the connection.
    """

    __slots__ = ("_take",)

    def __init__(self, services: Services, api: Api, api_version: int, take: Callable[[Message], None]) -> None:
        """`take` gets the response."""
        super().__init__(
            services,
            api,
            api_version=api_version,
            correlation_id=0,
            client_id=None,
            listener_name="",
            advertised=("", 0),
            connection=cast("Connection", None),
        )
        self._take = take

    @property
    def client_host(self) -> str:
        return "localhost"

    def respond(self, response: Response) -> None:
        """See RequestContext."""
        if self._is_answered:
            raise InvariantViolation(f"{self.api.name}: a request was answered twice")
        self._is_answered = True
        self._take(decode(self.api.response, self.api_version, response) if isinstance(response, bytes) else response)

    def _later(self) -> Later:
        return self.services.loop.call_soon

    def _failed(self, error: Exception) -> None:
        # No peer is to blame: a bug.
        self.services.loop.call_exception_handler({"message": self.api.name, "exception": error})

    def handler_returned(self) -> None:
        """Nothing else is asked over the same connection."""


Q = TypeVar("Q")
Handler: TypeAlias = Callable[[RequestContext, Q], None]
"""Takes a request, and answers through its context."""


def responds(work: Callable[[RequestContext, Q], Response]) -> Handler[Q]:
    """Makes a handler of a function that returns the response."""

    def handle(context: RequestContext, request: Q) -> None:
        context.respond(work(context, request))

    return handle


def responds_later(work: Callable[[RequestContext, Q], Coroutine[Any, Any, Response]]) -> Handler[Q]:
    """Makes a handler of a coroutine function that returns the response."""

    def handle(context: RequestContext, request: Q) -> None:
        context.respond_with(work(context, request))

    return handle


def responds_in_turns(work: Callable[[RequestContext, Q], Coroutine[Any, Any, Response]]) -> Handler[Q]:
    """Makes a handler of a coroutine function that returns the response, and goes at a Pace: with few entries, now."""

    def handle(context: RequestContext, request: Q) -> None:
        context.in_turns(work(context, request), context.respond)

    return handle
