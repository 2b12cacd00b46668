"""The process of a cluster's links (`links.py`), as who starts the cluster sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.wiring import BROKERS_LISTENER, Wiring, write_wiring
from raftlog.testing.process import START_TIMEOUT_SECONDS, BrokerProcess

HOST = "127.0.0.1"


class BrokerLinks(BrokerProcess):
    """Started before the brokers, and ended after them. Clients of brokers 1..n come in at `ports`. The brokers listen
    for each other's Raft at `peer_ports` (none for one broker), and for all else at ports of their own.
    """

    def __init__(
        self,
        cluster: Path,
        ports: Sequence[int],
        peer_ports: Sequence[int],
        reserve: Callable[[], int],
        python: Sequence[str],
    ) -> None:
        super().__init__(0, cluster, log_file=cluster / "links.log", python=python)
        self._cluster = cluster
        self._ports = list(ports)
        self._peer_ports = list(peer_ports)
        self.brokers_ports = [reserve() for _ in ports]
        """Where each broker listens for what comes from clients."""
        self._inner = [reserve() for _ in ports]
        self._dial = reserve()

    @property
    def module(self) -> str:
        """See BrokerProcess."""
        return "raftlog.testing.faults.links"

    @property
    def arguments(self) -> list[str]:
        """See BrokerProcess."""
        return ["--directory", str(self._cluster)]

    @property
    def imports(self) -> list[str]:
        """See BrokerProcess."""
        return [self.module]

    @property
    def addresses(self) -> list[str]:
        """Where clients come in, by broker."""
        return [f"{HOST}:{port}" for port in self._ports]

    def listeners(self, broker: int) -> dict[str, str]:
        """The listeners of a broker whose clients and fellow brokers come through the links."""
        at = broker - 1
        listeners = {"PLAINTEXT": self.brokers_ports[at], BROKERS_LISTENER: self._inner[at]}
        advertised = {**listeners, "PLAINTEXT": self._ports[at]}
        names = [*listeners]
        if self._peer_ports:
            listeners["CONTROLLER"] = self._peer_ports[at]
            names.append("CONTROLLER")
        return {
            "listeners": _addresses(listeners),
            "advertised.listeners": _addresses(advertised),
            "inter.broker.listener.name": BROKERS_LISTENER,
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        }

    def start(self, *, wait: bool = True, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """See BrokerProcess."""
        brokers: dict[str, int] = {}
        for ports in (self._inner, self._peer_ports):
            brokers |= {f"{HOST}:{port}": at + 1 for at, port in enumerate(ports)}
        clients = {at + 1: both for at, both in enumerate(zip(self._ports, self.brokers_ports, strict=True))}
        write_wiring(FaultDirectory(self._cluster), Wiring(self._dial, brokers, clients))
        super().start(wait=wait, timeout=timeout)


def _addresses(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
