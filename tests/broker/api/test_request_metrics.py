"""What is counted and timed of requests, on a connection without a socket."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.broker.api.request_metrics import SAMPLED, TIMED_EACH, RequestCounts, RequestTimes
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.reply import PendingReply
from raftlog.broker.core.connection.server_side import ServerSide
from raftlog.broker.core.connection.transport import CLOSED
from raftlog.histogram import Histogram
from raftlog.wire.apis import ApiKey
from raftlog.wire.error_codes import error_codes
from raftlog.wire.messages.heartbeat import HeartbeatResponse
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class FullTransport(type(CLOSED)):  # type: ignore[misc]
    """Takes nothing until it is told to."""

    is_full = False

    def send(self, buffer: bytes) -> int:
        if self.is_full:
            raise BlockingIOError
        return len(buffer)


class World:
    """One connection, and a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited_since = 100.0
        self.soon: list[Callable[[], None]] = []
        self.times = RequestTimes(lambda: self.now, lambda: self.waited_since, self.soon.append)
        memory = ReceiveMemory(lambda _: None, lambda *_: None, lambda: self.now)
        side = ServerSide(lambda *_: None, memory, lambda: self.now, 1_000)
        self.transport = FullTransport()
        self.connection = Connection(side, self.transport, ("", 1), ("", 2))

    def serve(self, handle: Callable[[], None], *, count: int = 1) -> None:
        self.times.serve(ApiKey.PRODUCE, count, self.connection, handle)

    def turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()

    def totals(self) -> dict[str, float]:
        """Milliseconds by part of a request's time."""
        times = self.times.by_api[ApiKey.PRODUCE]
        return {part: round(getattr(times, part).total, 3) for part in ("queue", "local", "remote", "send", "total")}

    def counts(self) -> set[int]:
        times = self.times.by_api[ApiKey.PRODUCE]
        return {sum(getattr(times, part).counts) for part in times.__slots__}

    def answer(self, *, seconds: float = 0.0) -> None:
        self.now += seconds
        self.connection.reply([b"x"])


def test_an_answer_that_is_known_at_once_costs_the_time_of_its_handler() -> None:
    world = World()
    world.now += 0.005
    world.serve(lambda: world.answer(seconds=0.002))
    world.now += 7
    world.turn()
    assert world.totals() == {"queue": 5.0, "local": 2.0, "remote": 0.0, "send": 0.0, "total": 7.0}


def test_an_answer_that_has_to_wait_is_remote_time_and_one_that_nobody_takes_is_sending() -> None:
    world = World()
    places: list[PendingReply] = []
    world.serve(lambda: places.append(world.connection.reserve_place()))
    world.now += 0.030
    world.transport.is_full = True
    places[0].complete([b"x"])
    world.now += 0.200
    world.transport.is_full = False
    world.connection.writable()
    assert world.totals() == {"queue": 0.0, "local": 0.0, "remote": 30.0, "send": 200.0, "total": 230.0}
    world.connection.check_invariants()


def test_a_place_that_is_used_again_tells_its_connection_again() -> None:
    world = World()
    places: list[PendingReply] = []
    world.serve(lambda: places.append(world.connection.reserve_place()))
    places[0].complete([b"x"])
    places[0].pieces = None
    world.connection.add_place(places[0])
    places[0].complete([b"y"])
    assert world.connection.is_idle
    assert world.counts() == {1}


def test_of_a_connection_that_ends_only_the_handler_is_counted() -> None:
    world = World()
    world.serve(lambda: world.connection.reserve_place() and None)
    world.connection.close("gone")
    times = world.times.by_api[ApiKey.PRODUCE]
    assert (sum(times.local.counts), sum(times.total.counts)) == (1, 0)


def test_a_request_of_many_stands_for_those_that_are_not_timed() -> None:
    world = World()
    world.serve(world.answer, count=TIMED_EACH + SAMPLED)
    world.turn()
    assert world.counts() == {SAMPLED}


def test_errors_are_found_wherever_they_stand() -> None:
    partitions = [MetadataResponsePartition(error_code=code) for code in (0, 5, 9)]
    topics = [MetadataResponseTopic(error_code=3), MetadataResponseTopic(partitions=partitions)]
    counts = RequestCounts()
    counts.count_errors(ApiKey.METADATA, MetadataResponse(topics=topics))
    counts.count_errors(ApiKey.METADATA, MetadataResponse(topics=topics[:1]))
    assert counts.errors == {(ApiKey.METADATA, 3): 2, (ApiKey.METADATA, 5): 1, (ApiKey.METADATA, 9): 1}
    assert list(error_codes(HeartbeatResponse(error_code=27))) == [27]
    assert list(error_codes(HeartbeatResponse())) == []


def test_a_histogram_counts_below_its_bounds() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 99):
        histogram.observe(value, 2)
    assert histogram.cumulative() == [("1", 4), ("2.5", 6), ("+Inf", 8)]
    assert histogram.total == 205


