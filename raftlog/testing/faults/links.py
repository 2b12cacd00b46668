"""The links of a cluster: a process between brokers, and between clients and brokers, that is told what to do to them.

Clients come in at a port for each broker. A broker that calls another one comes in at one port and says who it is and
whom it wants; it hears when the other one has answered. Behind a cut nobody hears anything, not even of an end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

import uvloop

from raftlog.testing.faults.directory import DONE, LOOK, FaultDirectory
from raftlog.testing.faults.flow import NEVER, Conditions, Flow
from raftlog.testing.faults.spec import CLIENTS, LINKS, FaultSpec
from raftlog.testing.faults.wiring import DIALLED, read_wiring

HELD_BYTES_MAX = 1 << 20
"""Of one direction of a connection; more is left in the kernel, and the sender finds its window closed."""
COUNT_SECONDS = 0.05
"""How often what faults have done is written down."""
HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)


class End(asyncio.Protocol):
    """One of the two sockets of a connection through a link: what it receives goes to the other one."""

    def __init__(self, links: Links, source: int, touched: set[int]) -> None:
        """`touched`: the faults that this connection has met, in either direction."""
        self.links = links
        self.source = source
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self.flow = Flow(links.random)
        self.conditions = Conditions()
        self.is_lost = False
        self._timer: asyncio.TimerHandle | None = None
        self._other_is_full = False
        self._touched = touched

    # -- in ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports work as one

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        other = self.other
        if other is not None and other.transport is not None and self.conditions.is_clear and self.flow.is_empty:
            other.transport.write(data)
            return
        self.count(len(data), is_lost=self.flow.put(bytes(data), self.links.now(), self.conditions))
        self.go_on()

    def count(self, size: int, *, is_lost: bool) -> None:
        """Something met the faults of this direction."""
        for spec in self.conditions.specs:
            if is_lost or spec.kind != "drop":
                self.links.count(spec, size, self._touched)

    def eof_received(self) -> bool:
        """See asyncio. The end is passed on like everything else."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self.is_lost = True
        self.go_on()

    # -- out ---------------------------------------------------------------------------------------

    def changed(self, conditions: Conditions) -> None:
        """Other faults are in force for what this end receives."""
        self.conditions = conditions
        self.flow.changed(self.links.now(), conditions)
        self.go_on()

    def go_on(self) -> None:
        """Pass on what is due, and the end if that is all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        other = self.other
        if other is None or other.transport is None:
            return
        pieces, waited = self.flow.take(self.links.now())
        if pieces and not other.is_lost:
            other.transport.write(b"".join(pieces))
        if waited:
            self.links.waited(self.conditions, waited)
        if self.is_lost and self.flow.is_empty and not self.conditions.is_cut:
            other.transport.close()
            self.links.ends.pop(self, None)
        elif self.flow.next_at < NEVER:
            self._timer = self.links.loop.call_later(self.flow.next_at - self.links.now(), self.go_on)
        self._mind_room()

    def _mind_room(self) -> None:
        if self.transport is None or self.is_lost:
            return
        if self._other_is_full or self.flow.held_bytes > HELD_BYTES_MAX:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """See asyncio: who sends to this end has to wait."""
        if self.other is not None:
            self.other._other_is_full = True
            self.other._mind_room()

    def resume_writing(self) -> None:
        """See asyncio."""
        if self.other is not None:
            self.other._other_is_full = False
            self.other._mind_room()

    def reset(self) -> None:
        """End the connection as a machine does that knows nothing of it."""
        if self.transport is None or self.is_lost:
            return
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


class Links:
    """All connections, and the faults that are in force for them."""

    def __init__(self, directory: FaultDirectory, loop: asyncio.AbstractEventLoop) -> None:
        self.directory = directory
        self.loop = loop
        self.now = loop.time
        self.random = Random()
        self.ends: dict[End, int] = {}
        """By the end that received: where what it receives goes to."""
        self._specs: list[FaultSpec] = []
        self._changed = asyncio.Event()
        self._counts: dict[int, list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        self._counting = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reset: set[int] = set()

    async def begin(self, ready_fd: int) -> None:
        wiring = read_wiring(self.directory)
        assert wiring is not None
        asking = await asyncio.start_server(self._asked, HOST, 0)
        self.directory.announce("links", asking.sockets[0].getsockname()[1])
        self.look()  # after that, so that a fault that is added meanwhile is not missed
        self.brokers = wiring.brokers
        for broker, (outer, inner) in wiring.clients.items():
            await self._take_calls(outer, partial(self._client, broker, inner))
        await self._take_calls(wiring.dial_port, self._dialled)
        os.write(ready_fd, b'{"address": "127.0.0.1:%d"}\n' % wiring.dial_port)
        os.close(ready_fd)

    async def _take_calls(self, port: int, serve: Callable[[socket.socket], Any]) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(1024)
        listener.setblocking(False)

        def accept() -> None:
            sock, _ = listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self.loop.create_task(serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.loop.add_reader(listener.fileno(), accept)

    # -- faults ------------------------------------------------------------------------------------

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline() == LOOK:
            self.look()
            self._write_counts()
            writer.write(DONE)
        writer.close()

    def look(self) -> None:
        """Carry out what is in force now."""
        self._specs = [spec for spec in self.directory.all() if spec.kind in LINKS and not spec.is_healed]
        for end, target in list(self.ends.items()):
            conditions = Conditions.of(self._specs, end.source, target)
            if conditions != end.conditions:
                end.changed(conditions)
        for spec in self._specs:
            if spec.kind == "reset" and spec.number not in self._reset:
                self._reset.add(spec.number)
                self._break_connections(spec)
        self._changed.set()
        self._changed = asyncio.Event()

    def _break_connections(self, spec: FaultSpec) -> None:
        broken: set[End] = set()
        for end, target in list(self.ends.items()):
            if (end.source, target) in spec.links and end.other is not None and not end.is_lost and end not in broken:
                broken |= {end, end.other}
                self.count(spec, 0, set())
                end.reset()
                end.other.reset()

    def count(self, spec: FaultSpec, size: int, touched: set[int]) -> None:
        """A fault met something of a connection, which has met the faults `touched` before."""
        counts = self._counts[spec.number]
        counts[0] += 1
        counts[1] += size
        counts[2] += spec.number not in touched
        touched.add(spec.number)
        self._count_soon()

    def waited(self, conditions: Conditions, seconds: float) -> None:
        """Something has waited because of these faults."""
        for spec in conditions.specs:
            self._counts[spec.number][3] += seconds * 1000
        self._count_soon()

    def _count_soon(self) -> None:
        if not self._counting:
            self._counting = True
            self.loop.call_later(COUNT_SECONDS, self._write_counts)

    def _write_counts(self) -> None:
        self._counting = False
        counts, self._counts = self._counts, defaultdict(lambda: [0, 0, 0, 0.0])
        for number, (fired, size, connections, ms) in counts.items():

            def add(spec: FaultSpec, more: tuple[float, ...] = (fired, size, connections, ms)) -> None:
                seen = spec.evidence
                seen.calls += int(more[0])
                seen.fired += int(more[0])
                seen.bytes += int(more[1])
                seen.connections += int(more[2])
                seen.ms += more[3]

            self.directory.change(number, add)

    # -- connections -------------------------------------------------------------------------------

    async def _passable(self, source: int, target: int, touched: set[int]) -> None:
        """Return when a call can be made over the link: both directions carry something, after their delays."""
        while True:
            changed = self._changed
            there, back = Conditions.of(self._specs, source, target), Conditions.of(self._specs, target, source)
            for spec in (*there.specs, *back.specs):
                if spec.number not in touched and spec.kind != "drop":
                    self.count(spec, 0, touched)
            if not (there.is_cut or back.is_cut):
                break
            await changed.wait()
        if there.delay or back.delay:
            await asyncio.sleep(there.delay + back.delay)

    async def _client(self, broker: int, port: int, sock: socket.socket) -> None:
        touched: set[int] = set()
        try:
            await self._passable(CLIENTS, broker, touched)
            called = await self._call(HOST, port)
        except OSError:
            sock.close()
            return
        await self._join(sock, CLIENTS, called, broker, touched)

    async def _dialled(self, sock: socket.socket) -> None:
        touched: set[int] = set()
        try:
            line = b""
            while not line.endswith(b"\n") and len(line) < 256:
                more = await self.loop.sock_recv(sock, 1)
                if not more:
                    raise ConnectionResetError
                line += more
            number, host, port = line.decode().split()
            target = self.brokers.get(f"{host}:{port}", CLIENTS)
            await self._passable(int(number), target, touched)
            called = await self._call(host, int(port))
            await self.loop.sock_sendall(sock, DIALLED)
        except (OSError, ValueError):
            sock.close()
            return
        await self._join(sock, int(number), called, target, touched)

    async def _call(self, host: str, port: int) -> socket.socket:
        called = socket.socket()
        called.setblocking(False)
        try:
            await self.loop.sock_connect(called, (host, port))
        except BaseException:
            called.close()
            raise
        called.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return called

    async def _join(
        self, calling: socket.socket, source: int, called: socket.socket, target: int, touched: set[int]
    ) -> None:
        near, far = End(self, source, touched), End(self, target, touched)
        near.other, far.other = far, near
        for end, to in ((near, target), (far, source)):
            self.ends[end] = to
            end.conditions = Conditions.of(self._specs, end.source, to)
        await self.loop.create_connection(lambda: far, sock=called)
        await self.loop.create_connection(lambda: near, sock=calling)
        far.go_on()


async def serve(directory: str, ready_fd: int, lifeline_fd: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(lifeline_fd, ended.set)
    links = Links(FaultDirectory(directory), loop)
    await links.begin(ready_fd)
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="links")
    parser.add_argument("--directory", required=True)
    parser.add_argument("--ready-fd", type=int, required=True)
    parser.add_argument("--lifeline-fd", type=int, required=True)
    options = parser.parse_args()
    uvloop.run(serve(options.directory, options.ready_fd, options.lifeline_fd))


if __name__ == "__main__":
    main()
