"""A whole broker on a simulated machine: the shipped `Broker`, with listeners on the simulated network."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raftlog.broker.api.handlers import import_all
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.connection.memory import ReceiveMemory
from raftlog.broker.core.connection.server_side import Dispatch, ServerSide
from raftlog.broker.platform import Platform
from raftlog.broker.server.listeners import ConnectionCounts
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.linearizability.simulator.cluster.kafka_port import FRAME_BYTES_MAX, SimulatedTransport
from raftlog.linearizability.simulator.machine.network import SimulatedServer
from raftlog.linearizability.simulator.machine.world import Machine
from raftlog.linearizability.simulator.mutants.mutants import patch

# In every run alike, the first of a process and others: then requests do not wait for a thread.
import_all()

KAFKA_PORT = 9092
PEER_PORT = 9192
DATA = "/data"
METADATA = "/meta"
PRODUCERS_LOOKED_AT_MS = 500


def host_of(node: int) -> str:
    """Where a broker is."""
    return f"host{node}"


def settings_of(node: int, voters: int, settings: Mapping[str, str]) -> BrokerConfig:
    """The configuration of one broker of a cluster."""
    quorum = ",".join(f"{voter}@{host_of(voter)}:{PEER_PORT}" for voter in range(1, voters + 1))
    return BrokerConfig(
        {
            "node.id": str(node),
            "process.roles": "broker,controller" if node <= voters else "broker",
            "listeners": f"PLAINTEXT://{host_of(node)}:{KAFKA_PORT},CONTROLLER://{host_of(node)}:{PEER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": quorum,
            "log.dirs": DATA,
            **settings,
        }
    )


class SimulatedListeners:
    """The Kafka listener of a simulated broker; see Listeners."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._address = (machine.host, KAFKA_PORT)
        self._server: SimulatedServer | None = None
        self._memory = ReceiveMemory(machine.loop.call_soon, machine.loop.call_later, machine.loop.time)
        self._transports: list[SimulatedTransport] = []

    def bind(self) -> list[tuple[str, str, int]]:
        """See Listeners."""
        return [("PLAINTEXT", *self._address)]

    def open(self, dispatch: Dispatch, on_bug: Callable[[BaseException], None]) -> None:
        """See Listeners."""
        machine = self._machine
        machine.parts["open"] = True
        side = ServerSide(dispatch, self._memory, machine.loop.time, FRAME_BYTES_MAX)

        def accept() -> SimulatedTransport:
            made = SimulatedTransport(side, machine, self._address)
            self._transports.append(made)
            return made

        self._server = machine.world.network.listen(machine.loop, accept, self._address)

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Nothing bounds the connections of a simulated network."""

    def counts(self) -> ConnectionCounts:
        """See Listeners. Nobody asks."""
        count = len(self._transports)
        return ConnectionCounts(count, {"PLAINTEXT": count}, count, 0, 0)

    def waited_since(self) -> float:
        """See Listeners. Nobody asks."""
        return self._machine.loop.time()

    def disconnect_all(self, reason: str) -> None:
        """See Listeners."""
        transports, self._transports = self._transports, []
        for transport in transports:
            if transport.connection is not None:
                transport.connection.close(reason)

    def tell_again(self) -> None:
        """Connections of a simulated network end on both sides."""

    def stop_accepting(self) -> None:
        """See Listeners."""
        if self._server is not None:
            self._server.close()

    async def drain(self, seconds_max: float) -> None:
        """See Listeners."""
        deadline = self._machine.loop.time() + seconds_max
        while self._machine.loop.time() < deadline and any(transport.is_busy for transport in self._transports):
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """See Listeners."""
        self.disconnect_all("the broker stops")

    def check_invariants(self) -> None:
        """See Listeners. Connections are looked at with each event (`kafka_port.py`)."""
        self._memory.check_invariants()


def described(machine: Machine) -> str:
    """A broker in a few words, for the report of a run that does not come to rest."""
    broker: Any = machine.parts.get("broker") if machine.running else None
    if broker is None:
        return f"{machine.node} is down"
    log = broker.controller.log
    image = broker.controller.image
    known = image.brokers.get(machine.node)
    states = [
        f"{topic.name}-{state.partition_id} leader {state.leader} epoch {state.leader_epoch} isr {state.isr}"
        for topic in image.topics.values()
        for state in topic.partitions
    ]
    fenced = "unknown" if known is None else "fenced" if known.fenced else "unfenced"
    serving = "serving" if machine.parts.get("serving") else "starting"
    return (
        f"{machine.node} {serving}, {fenced}, term {log.term} leader {log.leader_id} version {image.version}:"
        f" {', '.join(states)}"
    )


async def broker_program(machine: Machine, config: BrokerConfig) -> None:
    """What a simulated machine runs: a broker, until it is told to stop."""
    boots = machine.boots
    broker = Broker(
        config,
        Platform(
            clock=machine.clock,
            disk=machine.disk,
            rng=machine.random,
            boot_id=f"{machine.node}.{boots}",
        ),
        SimulatedListeners(machine),
    )
    machine.parts["broker"] = broker
    machine.loop.add_signal_handler(signal.SIGTERM, broker.stopping.set)
    await broker.start()
    machine.parts["serving"] = True
    await broker.stopping.wait()
    if broker.failure is not None:
        raise broker.failure
    await broker.stop()


class _AtOnce(Executor):
    """Carries out what is given to it before it returns: recovery syncs its logs in threads, and waits for them."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except OSError as error:
            done.set_exception(error)
        return done


@contextmanager
def adapted() -> Iterator[None]:
    """The one place of the broker that waits for threads by itself gets an executor that has none, and producers that
    are idle are looked for as often as a short run needs it, which is no setting.
    """

    def settings(config: Mapping[str, Any]) -> LogManagerSettings:
        return replace(read(config), producer_expiration_check_interval_ms=PRODUCERS_LOOKED_AT_MS)

    at_once = _AtOnce()
    read = LogManagerSettings.from_config
    with (
        patch(LogManager, "_pool", lambda self: at_once),
        patch(LogManagerSettings, "from_config", staticmethod(settings)),
    ):
        yield
