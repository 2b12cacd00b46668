"""How often each API is asked for, what errors it answers, and where the time of its requests goes.

Requests and errors are counted always. Times are taken only when somebody can read them (`begin_timing`), of every
request of an API that is seldom asked for, and of one in SAMPLED of one that is asked for often: that one stands for
the others. The parts of a request's time are Kafka's:

- queue: since the broker heard that there is something to read from the client, or put it off to a later turn;
- local: the handler;
- remote: from then until the answer is known, for followers, records to fetch, or a quorum;
- send: from then until the transport has taken the answer; 0 if it took it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from raftlog.histogram import Histogram
from raftlog.wire.error_codes import error_codes, has_one_error_code

if TYPE_CHECKING:
    from raftlog.broker.core.connection.connection import Connection
    from raftlog.broker.core.connection.reply import PendingReply, Piece, ReplySink
    from raftlog.wire.apis import Api
    from raftlog.wire.schema import Message

SAMPLED: Final = 64
"""Of an API that is asked for often, one request in so many is timed."""
TIMED_EACH: Final = 1_000
"""So many requests of an API are timed one by one, before others stand for them."""
BOUNDS_MS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)


def next_timed(count: int) -> int:
    """Which request of an API is timed after the `count`th."""
    return count + (1 if count <= TIMED_EACH else SAMPLED)


class ApiTimes:
    """Of one API, in milliseconds."""

    __slots__ = ("local", "queue", "remote", "send", "total")

    def __init__(self) -> None:
        self.queue, self.local, self.remote, self.send, self.total = (Histogram(BOUNDS_MS) for _ in range(5))


class RequestTimes:
    """The times of all APIs. `now` and `waited_since`, which is since when the request that is served now was waiting,
    are in seconds of one clock.
    """

    def __init__(
        self,
        now: Callable[[], float],
        waited_since: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.by_api: dict[int, ApiTimes] = {}
        self.now = now
        self._waited_since = waited_since
        self.call_soon = call_soon

    def serve(self, api_key: int, count: int, connection: Connection, serve: Callable[[], None]) -> None:
        """Let it be served, and take its times. `count`: the how manieth request of its API it is."""
        times = self.by_api.get(api_key)
        if times is None:
            times = self.by_api[api_key] = ApiTimes()
        before = connection.newest_place
        began = self.now()
        queue_ms = max((began - self._waited_since()) * 1000, 0.0)
        serve()
        request = _TimedRequest(self, times, connection, count)
        request.handled(queue_ms, began)
        place = connection.newest_place
        if place is not None and place is not before and place.pieces is None:
            request.wait(place)
        else:
            # It leaves with all that was received together.
            request.answered_at = request.handled_at
            self.call_soon(request.await_sending)


class _TimedRequest:
    """A request that was handled, until its answer has left. A ReplySink for the answer that is not known yet."""

    __slots__ = (
        "_connection",
        "_place",
        "_sink",
        "_times",
        "_weight",
        "answered_at",
        "before_ms",
        "handled_at",
        "times",
    )

    def __init__(self, owner: RequestTimes, times: ApiTimes, connection: Connection, count: int) -> None:
        self.times = owner
        self._times = times
        self._connection = connection
        self._weight = SAMPLED if count > TIMED_EACH else 1
        self._sink: ReplySink | None = None
        self._place: PendingReply | None = None
        self.handled_at = self.before_ms = self.answered_at = 0.0

    def handled(self, queue_ms: float, began: float) -> None:
        """The handler has returned."""
        self.handled_at = self.times.now()
        local_ms = (self.handled_at - began) * 1000
        self._times.queue.observe(queue_ms, self._weight)
        self._times.local.observe(local_ms, self._weight)
        self.before_ms = queue_ms + local_ms

    def wait(self, place: PendingReply) -> None:
        """The answer will go to this place."""
        self._place = place
        self._sink = place.watch(self)

    def reply_ready(self, pieces: Sequence[Piece]) -> None:
        """See ReplySink."""
        assert self._place is not None and self._sink is not None
        self._place.unwatch(self._sink)
        self.answered_at = self.times.now()
        self._sink.reply_ready(pieces)
        self.await_sending()

    def await_sending(self) -> None:
        """The answer is known."""
        if self._connection.is_unread:
            self._connection.call_when_sent(lambda: self._sent((self.times.now() - self.answered_at) * 1000))
        else:
            self._sent(0.0)

    def _sent(self, send_ms: float) -> None:
        weight, times = self._weight, self._times
        remote_ms = (self.answered_at - self.handled_at) * 1000
        times.remote.observe(remote_ms, weight)
        times.send.observe(send_ms, weight)
        times.total.observe(self.before_ms + remote_ms + send_ms, weight)


class RequestCounts:
    """Of all APIs: what the dispatcher and the handlers count."""

    def __init__(self) -> None:
        self.requests: Callable[[], Sequence[tuple[Api, int]]] = lambda: ()
        # (API key, error code): how many.
        self.errors: Counter[tuple[int, int]] = Counter()
        self.begin_timing: Callable[[RequestTimes], None] = lambda _: None

    def count_errors(self, api_key: int, response: Message) -> None:
        """A response goes out."""
        if has_one_error_code(type(response)):
            code: int = response.error_code  # type: ignore[attr-defined]
            if code:
                self.count_error(api_key, code)
            return
        for code in error_codes(response):
            self.count_error(api_key, code)

    def count_error(self, api_key: int, code: int) -> None:
        """One part of a response is an error."""
        self.errors[int(api_key), int(code)] += 1
