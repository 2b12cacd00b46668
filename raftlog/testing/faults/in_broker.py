"""A broker that faults may happen to: built of the same parts, but for its disk, its clock and its way out.

`raftlog broker --faults DIRECTORY` starts here. A broker that is started without it has nothing of this in its way.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import uvloop

from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.connection.server_side import Dispatch
from raftlog.broker.main import Surroundings
from raftlog.broker.platform import Platform, this_platform
from raftlog.broker.server.listeners import KafkaListeners
from raftlog.testing.faults.directory import DONE, LOOK, TELL, FaultDirectory
from raftlog.testing.faults.last_requests import LastRequests
from raftlog.testing.faults.machine import FaultyClock, FaultyDisk
from raftlog.testing.faults.protocol import ProtocolFaults
from raftlog.testing.faults.spec import DISKS, FaultSpec
from raftlog.testing.faults.wiring import BROKERS_LISTENER, DIALLED, read_wiring

log = logging.getLogger("raftlog.faults")


class FaultyLoop(uvloop.Loop):
    """Connections to other brokers are made through the links' process."""

    broker = 0
    links: tuple[str, int] | None = None

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """See asyncio. Raises ConnectionRefusedError as a direct call would."""
        if self.links is None or host is None:
            return await super().create_connection(protocol_factory, host, port, **options)
        calling = socket.socket()
        calling.setblocking(False)
        try:
            await self.sock_connect(calling, self.links)
            await self.sock_sendall(calling, f"{self.broker} {host} {port}\n".encode())
            if await self.sock_recv(calling, len(DIALLED)) != DIALLED:
                raise ConnectionRefusedError(f"{host}:{port} refuses the connection")
            return await super().create_connection(protocol_factory, sock=calling, **options)
        except BaseException:
            calling.close()
            raise


class FaultPoint:
    """What carries out the faults of one broker, in its process."""

    def __init__(self, config: BrokerConfig, directory: str) -> None:
        self.directory = FaultDirectory(directory)
        self.directory.path.mkdir(parents=True, exist_ok=True)
        self.broker = config.node_id
        listener = BROKERS_LISTENER if config.inter_broker_listener == BROKERS_LISTENER else ""
        self.protocol = ProtocolFaults(self.directory, self.broker, listener)
        self.last_requests = LastRequests()
        self.disk = FaultyDisk(self._happened)
        self.clock = FaultyClock()
        self._boots = self.directory.path.parent / f"boots-{self.broker}"

    def platform(self) -> Platform:
        """The machine, with a disk and a clock that may fail; after a power cut it was started anew."""
        platform = this_platform()
        boots = self._boots.read_text() if self._boots.exists() else ""
        return Platform(clock=self.clock, disk=self.disk, rng=platform.rng, boot_id=platform.boot_id + boots)

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = FaultyLoop()
        wiring = read_wiring(self.directory)
        loop.broker, loop.links = self.broker, None if wiring is None else ("127.0.0.1", wiring.dial_port)
        return loop

    def listeners(self, config: BrokerConfig) -> KafkaListeners:
        self._begin_to_listen()
        self.look()  # after that, so that a fault that is added meanwhile is not missed
        return FaultyListeners(config, self.protocol, self.last_requests)

    # -- looking -----------------------------------------------------------------------------------

    def _begin_to_listen(self) -> None:
        asking = socket.create_server(("127.0.0.1", 0))
        asking.setblocking(False)
        asyncio.get_running_loop().add_reader(asking.fileno(), self._asked, asking)
        self.directory.announce(f"broker-{self.broker}", asking.getsockname()[1])

    def _asked(self, asking: socket.socket) -> None:
        try:
            who, _ = asking.accept()
        except OSError:
            return
        with who:
            who.settimeout(0.5)
            try:
                asked = who.recv(len(LOOK))
                if asked == LOOK:
                    self.look()
                    who.sendall(DONE)
                elif asked == TELL:
                    who.sendall(json.dumps(self.last_requests.told()).encode())
            except OSError as error:
                log.warning("could not answer who asked for faults or for the last requests: %s", error)

    def look(self) -> None:
        """Carry out what is in force now."""
        specs = [spec for spec in self.directory.all() if spec.is_at(self.broker)]
        self.protocol.install(specs)
        self.disk.install([spec for spec in specs if spec.kind in DISKS])
        clocks = [spec for spec in specs if spec.kind == "clock"]
        offset = sum(spec.amount for spec in clocks) * 1000
        rate = 1.0 + sum(spec.jitter for spec in clocks)
        if (offset, rate) != (self.clock.offset_ms, self.clock.rate):
            self.clock.set(offset, rate, partial(self._clock_was_read, clocks))
        for spec in specs:
            if spec.kind in ("power", "tear") and not spec.evidence.fired:
                self._power_cut(spec)

    def _clock_was_read(self, clocks: list[FaultSpec]) -> None:
        for spec in clocks:
            self._happened(spec, 0, abs(spec.amount) * 1000)

    def _happened(self, spec: FaultSpec, size: int, ms: float) -> None:
        def count(found: FaultSpec) -> None:
            seen = found.evidence
            seen.calls += 1
            seen.fired += 1
            seen.bytes += size
            seen.ms += ms

        self.directory.change(spec.number, count)

    def _power_cut(self, spec: FaultSpec) -> None:
        lost = self.disk.lose_what_was_not_synced(Random(spec.when.seed) if spec.kind == "tear" else None)
        self._happened(spec, lost, 0.0)
        boots = json.loads(self._boots.read_text() or "0") if self._boots.exists() else 0
        self._boots.write_text(json.dumps(boots + 1))
        os.kill(os.getpid(), signal.SIGKILL)


class FaultyListeners(KafkaListeners):
    """The listeners, with room for faults of requests between them and the dispatcher."""

    def __init__(self, config: BrokerConfig, protocol: ProtocolFaults, last_requests: LastRequests) -> None:
        super().__init__(config)
        self._protocol = protocol
        self._last_requests = last_requests

    def open(self, dispatch: Dispatch, on_bug: Callable[[BaseException], None]) -> None:
        """See Listeners."""
        dispatch = self._last_requests.watch(dispatch)
        super().open(dispatch, on_bug)
        self._protocol.stand_between(self._server.side, dispatch, lambda: list(self._server.connections))


def surroundings(config: BrokerConfig, directory: str) -> Surroundings:
    """What a broker is built in to which the faults of this directory happen."""
    point = FaultPoint(config, directory)
    return Surroundings(loop=point.loop, platform=point.platform, listeners=point.listeners)
