"""The simulated network: TCP as programs see it, whole and broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftlog.linearizability.simulator.machine.links import Delays
from raftlog.linearizability.simulator.machine.world import Machine, World

ADDRESS = ("host2", 9000)


class Recorder(asyncio.Protocol):
    """Keeps what it is told, with the time."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.transport: Any = None
        self.received = bytearray()
        self.events: list[str] = []
        self.lost_at: float | None = None
        self.lost: BaseException | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")
        self.lost = error
        self.lost_at = asyncio.get_running_loop().time()

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """A client on host1 and a server on host2, connected at about 0 s."""

    def __init__(self, *, echo: bool = False, delays: Delays | None = None, seed: int = 1) -> None:
        self.world = World(seed, delays=delays)
        self.near = self.world.add_machine(1, "host1")
        self.far = self.world.add_machine(2, "host2")
        self.client = Recorder()
        self.accepted: list[Recorder] = []
        self.failure: OSError | None = None
        self.echo = echo
        self.far.start(self.serve)
        self.near.start(self.connect)

    def make(self) -> Recorder:
        self.accepted.append(Recorder(self.echo))
        return self.accepted[-1]

    async def serve(self, machine: Machine) -> None:
        await asyncio.get_running_loop().create_server(self.make, *ADDRESS)
        await asyncio.sleep(10_000)

    async def connect(self, _: Machine) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.client, *ADDRESS)
        except OSError as error:
            self.failure = error
        await asyncio.sleep(10_000)

    def until(self, end: float) -> None:
        self.world.scheduler.run_until(end)

    @property
    def server(self) -> Recorder:
        return self.accepted[-1]


def test_bytes_arrive_in_order_in_pieces_of_any_size() -> None:
    pair = Pair(echo=True, delays=Delays(high=0.05, lost=0.1, split=0.5))
    pair.until(5)
    sent = b""
    for number in range(200):
        sent += b"%d," % number
        pair.client.transport.write(b"%d," % number)
    pair.until(60)
    assert pair.server.received == sent == pair.client.received


def test_a_cut_holds_bytes_back_until_it_heals_and_only_in_its_direction() -> None:
    pair = Pair()
    pair.until(1)
    pair.world.links.cut(1, 2)
    pair.client.transport.write(b"there")
    pair.server.transport.write(b"back")
    pair.until(3)
    assert pair.client.received == b"back" and pair.server.received == b""
    pair.world.links.heal(1, 2)
    pair.until(7)
    assert pair.server.received == b"there" and pair.client.events == ["made"]


def test_a_long_cut_breaks_the_connection_of_who_has_sent_something() -> None:
    pair = Pair()
    pair.until(1)
    pair.world.links.cut(1, 2)
    pair.client.transport.write(b"there")
    pair.until(60)
    assert isinstance(pair.client.lost, TimeoutError) and pair.server.lost_at is None


def test_a_killed_process_ends_its_connections_at_once() -> None:
    pair = Pair()
    pair.until(1)
    pair.far.kill()
    pair.until(1.01)
    assert pair.client.events == ["made", "eof", "lost"]


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    pair = Pair()
    pair.until(1)
    pair.far.power_cut()
    pair.until(2)
    assert pair.client.lost_at is None
    pair.client.transport.write(b"hello?")
    pair.until(4)
    assert pair.client.lost_at is None
    pair.far.start()
    pair.until(8)
    assert isinstance(pair.client.lost, ConnectionResetError)


def test_a_host_that_lost_its_power_while_its_last_words_were_under_way_answers_when_it_is_back() -> None:
    pair = Pair()
    pair.until(1)
    pair.world.links.cut(2, 1)
    pair.far.kill()
    pair.until(2)
    pair.far.power_cut()
    pair.world.links.heal(2, 1)
    pair.until(4)
    assert pair.client.lost_at is None
    pair.far.start()
    pair.client.transport.write(b"hello?")
    pair.until(8)
    assert pair.client.lost_at is not None


def test_a_stopped_process_still_takes_connections_and_bytes() -> None:
    pair = Pair()
    pair.until(0.000_001)
    pair.far.freeze()
    pair.until(1)
    assert pair.client.events == ["made"] and pair.accepted == []
    pair.far.thaw()
    pair.until(5)
    pair.far.freeze()
    pair.client.transport.write(b"x" * 1_000_000)
    pair.until(6)
    assert pair.server.received == b"" and "pause" in pair.client.events
    pair.far.thaw()
    pair.until(7)
    assert len(pair.server.received) == 1_000_000 and pair.client.events[-1] == "resume"


def test_who_is_not_there_refuses_and_who_is_cut_off_is_tried_again() -> None:
    pair = Pair()
    pair.far.kill()
    pair.until(1)
    assert isinstance(pair.failure, ConnectionRefusedError)
    other = Pair()
    other.world.links.cut(2, 1)
    other.until(2)
    assert other.client.events == [] and other.failure is None
    other.world.links.heal(2, 1)
    other.until(8)
    assert other.client.events == ["made"]


def test_closing_sends_what_was_written_and_then_the_end() -> None:
    pair = Pair()
    pair.until(1)
    pair.client.transport.write(b"last words")
    pair.client.transport.close()
    pair.until(2)
    assert pair.server.received == b"last words" and pair.server.events == ["made", "eof", "lost"]
    assert pair.client.events == ["made", "lost"] and pair.client.lost is None


def test_a_reset_reaches_both_ends() -> None:
    pair = Pair()
    pair.until(1)
    assert pair.world.network.reset_connections(1, 2) == 1
    pair.until(2)
    assert isinstance(pair.client.lost, ConnectionResetError) and isinstance(pair.server.lost, ConnectionResetError)


@pytest.mark.parametrize("seed", range(3))
def test_one_seed_gives_one_trace(seed: int) -> None:
    digests = []
    for _ in range(2):
        pair = Pair(echo=True, delays=Delays(lost=0.2, split=0.3), seed=seed)
        pair.until(3)
        for number in range(50):
            pair.client.transport.write(b"%d" % number)
        pair.until(30)
        digests.append(pair.world.trace.digest())
    assert digests[0] == digests[1]
