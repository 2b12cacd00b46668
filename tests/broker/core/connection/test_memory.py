"""How memory for large requests is shared: who goes first, who keeps what, and who loses it."""

from __future__ import annotations

import pytest

from raftlog.broker.core.connection.limits import (
    KEPT_PART,
    PRESSED_RECEIVE_BYTES,
    RECEIVE_BUFFER_BYTES,
    SLOW_SECONDS,
    SMALL_REQUEST_BYTES,
)
from raftlog.broker.core.connection.memory import ReceiveMemory
from tests.broker.core.connection.fake_transport import FakeTransport

MIB = 1 << 20
BOUND = 64 * MIB
SMALL_SHARE = BOUND // 4


class World:
    """Memory of 64 MiB, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.later = FakeTransport()
        self.memory = ReceiveMemory(self.later.call_soon, self.later.call_later, lambda: self.now, BOUND)

    def pass_time(self, seconds: float = SLOW_SECONDS) -> None:
        self.now += seconds
        self.later.pass_time()
        self.later.turn()
        self.memory.check_invariants()


class Sender:
    """One request of so many MiB, as far as it has come."""

    def __init__(self, world: World, size: float) -> None:
        self.world = world
        self.size = int(size * MIB)
        self.arrived_bytes = 0
        self.has_lost = False
        self.has_memory = False
        self.resume()

    def resume(self) -> None:
        self.has_memory = self.world.memory.take(self, self.size) is not None
        self.world.memory.check_invariants()

    def lose_memory(self) -> None:
        self.has_lost = True
        self.end()

    def end(self) -> None:
        self.has_memory = False
        self.world.memory.give_back(self)
        self.world.memory.check_invariants()


def test_large_requests_leave_small_ones_their_share() -> None:
    world = World()
    large = [Sender(world, 20) for _ in range(3)]
    assert [sender.has_memory for sender in large] == [True, True, False]
    small = [Sender(world, 2) for _ in range(SMALL_SHARE // SMALL_REQUEST_BYTES)]
    assert all(sender.has_memory for sender in small)
    late = Sender(world, 1)
    assert not late.has_memory, "while a large one waits, small ones keep to their share"
    small[0].end()
    world.later.turn()
    assert late.has_memory


def test_whose_request_does_not_move_loses_its_memory_once_others_wait() -> None:
    world = World()
    stopped, moving = Sender(world, 20), Sender(world, 20)
    world.pass_time(10)
    assert not stopped.has_lost, "nobody needs it"
    waiting = Sender(world, 20)
    moving.arrived_bytes += 1 * MIB
    world.pass_time()
    assert (stopped.has_lost, moving.has_lost, waiting.has_memory) == (True, False, True)


def test_no_more_lose_their_memory_than_is_needed() -> None:
    world = World()
    stopped = [Sender(world, size) for size in (10, 20, 15)]
    waiting = Sender(world, 18)
    world.pass_time()
    assert [sender.has_lost for sender in stopped] == [False, True, False]
    assert waiting.has_memory


def test_who_could_not_be_read_because_the_broker_was_busy_is_not_slow() -> None:
    world = World()
    holders = [Sender(world, 20), Sender(world, 20)]
    Sender(world, 20)
    world.pass_time(3)
    assert not any(sender.has_lost for sender in holders)
    world.pass_time()
    assert any(sender.has_lost for sender in holders)


def test_who_waits_for_little_goes_first_but_not_for_ever() -> None:
    world = World()
    holder = Sender(world, 60)
    much, little = Sender(world, 44), Sender(world, 4)
    world.now += 10
    late = Sender(world, 4)
    holder.end()
    world.later.turn()
    assert (little.has_memory, much.has_memory, late.has_memory) == (True, True, False)
    assert world.memory.given_out_bytes <= BOUND


def test_less_is_received_at_once_while_somebody_waits() -> None:
    world = World()
    holder = Sender(world, 60)
    waiting = Sender(world, 60)
    assert len(world.memory.offered) == PRESSED_RECEIVE_BYTES
    waiting.end()
    assert len(world.memory.offered) == RECEIVE_BUFFER_BYTES
    holder.end()
    assert world.memory.given_out_bytes == 0


def test_less_is_received_at_once_while_connections_keep_much_that_they_cannot_look_at_yet() -> None:
    """A client with as many requests under way as it may have sends half a MiB more, and thousands of them a GiB."""
    world = World()
    for _ in range(BOUND // KEPT_PART // RECEIVE_BUFFER_BYTES):
        world.memory.keep(RECEIVE_BUFFER_BYTES)
    assert len(world.memory.offered) == RECEIVE_BUFFER_BYTES
    world.memory.keep(1)
    holder = Sender(world, 60)
    holder.end()
    assert len(world.memory.offered) == PRESSED_RECEIVE_BYTES
    world.memory.keep(-1)
    assert len(world.memory.offered) == RECEIVE_BUFFER_BYTES
    world.memory.check_invariants()


@pytest.mark.parametrize("size", [80, 64])
def test_one_request_may_arrive_however_large_it_is(size: int) -> None:
    world = World()
    small = Sender(world, 1)
    large = Sender(world, size)
    late = Sender(world, 1)
    assert not large.has_memory and not late.has_memory, "it would wait for ever if small ones went on before it"
    small.end()
    world.later.turn()
    assert large.has_memory and not late.has_memory
    large.end()
    world.later.turn()
    assert late.has_memory
