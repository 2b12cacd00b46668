"""Where clients come in: the Kafka listeners of a broker, opened only when it can serve.

A simulation brings listeners of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.connection.connection import Connection
from raftlog.broker.core.connection.server_side import Dispatch
from raftlog.broker.core.connection_rate import ConnectionRates
from raftlog.broker.descriptors import shares
from raftlog.broker.server.limits import ServerLimits, connections_by_address
from raftlog.broker.server.server import Server
from raftlog.metadata.configs import of_one_listener

log = logging.getLogger("raftlog.server")

_OVERRIDES = "max.connections.per.ip.overrides"
_CREATION_RATE = "max.connection.creation.rate"


class ConnectionCounts(NamedTuple):
    """Connections: open now, those by listener, all that were accepted or refused; bytes that large requests have."""

    open: int
    by_listener: Mapping[str, int]
    accepted: int
    refused: int
    request_bytes: int


class Listeners(Protocol):
    """The listeners of one broker."""

    def bind(self) -> list[tuple[str, str, int]]:
        """Take the addresses, so that nobody else has them: (listener name, host, port) of each. Raises OSError."""

    def open(self, dispatch: Dispatch, on_bug: Callable[[BaseException], None]) -> None:
        """Let clients in; their frames go to `dispatch`, and a bug in serving them to `on_bug`."""

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Take the limits of these settings, by Kafka's names; they hold for who connects from now on."""

    def counts(self) -> ConnectionCounts:
        """How many connections there are and were."""

    def waited_since(self) -> float:
        """When the request that is served now was heard of, or was put off: seconds of `time.monotonic`."""

    def disconnect_all(self, reason: str) -> None:
        """End all connections, and go on letting clients in."""

    def tell_again(self) -> None:
        """The network is whole again: tell those that could not be reached when `disconnect_all` ended theirs."""

    def stop_accepting(self) -> None:
        """Let nobody else in."""

    async def drain(self, seconds_max: float) -> None:
        """Wait until the replies under way have left."""

    def close(self) -> None:
        """Close all connections."""

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what they promise does not hold."""


class KafkaListeners:
    """The listeners of `listeners`, on sockets."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._overrides: str = config[_OVERRIDES]
        limits = _limits(config, connections_by_address(self._overrides))
        self._server = Server(asyncio.get_running_loop(), limits, _nobody)
        # What brokers need of each other does not wait for clients (KIP-612), where it has a listener of its own.
        protected = config.inter_broker_listener if len(config.endpoints) > 1 else None
        window_ms = config["quota.window.size.seconds"] * 1000
        self._server.rates = ConnectionRates(config["quota.window.num"], window_ms, protected)
        self._limit_rates(config)

    def bind(self) -> list[tuple[str, str, int]]:
        """See Listeners."""
        return [(e.listener_name, *self._server.bind(e.host, e.port, e.listener_name)) for e in self._config.endpoints]

    def open(self, dispatch: Dispatch, on_bug: Callable[[BaseException], None]) -> None:
        """See Listeners."""
        self._server.side.dispatch = dispatch
        self._server.on_fatal = on_bug
        self._server.accept()

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """See Listeners."""
        self._server.limits = limits = _limits(config, self._server.limits.connections_by_address)
        self._server.side.request_bytes_max = limits.request_bytes_max
        self._limit_rates(config)
        if config[_OVERRIDES] != self._overrides:
            self._overrides = overrides = config[_OVERRIDES]
            looking = self._server.loop.run_in_executor(None, connections_by_address, overrides)
            looking.add_done_callback(partial(self._looked_up, overrides))

    def _limit_rates(self, config: Mapping[str, Any]) -> None:
        names = [endpoint.listener_name for endpoint in self._config.endpoints]
        own = {name: config.get(of_one_listener(name, _CREATION_RATE)) for name in names}
        given = {name: rate for name, rate in own.items() if rate is not None}
        self._server.rates.limit(config[_CREATION_RATE], given)

    def _looked_up(self, overrides: str, looking: asyncio.Future[Mapping[str, int]]) -> None:
        # Nothing newer has been set meanwhile.
        if overrides == self._overrides and not looking.cancelled():
            self._server.limits = self._server.limits._replace(connections_by_address=looking.result())

    def counts(self) -> ConnectionCounts:
        """See Listeners."""
        server = self._server
        by_listener = dict.fromkeys((endpoint.listener_name for endpoint in self._config.endpoints), 0)
        for connection in server.connections:
            by_listener[connection.listener_name] += 1
        count = len(server.connections)
        return ConnectionCounts(count, by_listener, server.accepted, server.refused, server.memory.given_out_bytes)

    def waited_since(self) -> float:
        """See Listeners."""
        return self._server.turns.waited_since

    def disconnect_all(self, reason: str) -> None:
        """See Listeners."""
        # Our own tools and brokers look around by themselves, and a tool asks about just this state.
        connections = [c for c in self._server.connections if not c.software.startswith("raftlog ")]
        log.warning("%s: disconnecting %d clients, who may find leaders elsewhere", reason, len(connections))
        self._server.disconnect(connections, reason)

    def tell_again(self) -> None:
        """See Listeners."""
        told = self._server.unheard_ends.tell_again()
        if told:
            log.info("%d clients had not heard that they were disconnected: told again", told)

    def stop_accepting(self) -> None:
        """See Listeners."""
        self._server.stop_accepting()

    async def drain(self, seconds_max: float) -> None:
        """See Listeners."""
        await self._server.drain(seconds_max)

    def close(self) -> None:
        """See Listeners."""
        self._server.close()

    def check_invariants(self) -> None:
        """See Listeners. Connections look after themselves."""
        self._server.memory.check_invariants()


def _limits(config: Mapping[str, Any], by_address: Mapping[str, int]) -> ServerLimits:
    return ServerLimits.from_config(config, by_address)._replace(descriptors=shares().connections)


def _nobody(_connection: Connection, _frame: memoryview) -> None:
    raise AssertionError("a request came in before the listeners were open")
