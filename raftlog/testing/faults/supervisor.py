"""Starts brokers again whose faults were healed by somebody else: `raftlog fault heal`, in another process."""

from __future__ import annotations

import socket
from contextlib import suppress

from raftlog.testing.clusters import Cluster
from raftlog.testing.faults.directory import DONE, LOOK, FaultDirectory
from raftlog.testing.faults.starting import fails_to_sync
from raftlog.testing.process import BrokerProcess


class Supervisor:
    """Of a cluster that this process has started. `look` when its descriptor becomes readable."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._directory = FaultDirectory(cluster.directory)
        self._asking = socket.create_server(("127.0.0.1", 0))
        self._directory.announce("supervisor", self._asking.getsockname()[1])
        self._seen: set[int] = set()

    def fileno(self) -> int:
        return self._asking.fileno()

    def look(self) -> None:
        """Start who was healed. Who heals waits until they serve; when one ends, its descriptor says so."""
        who, _ = self._asking.accept()
        with who, suppress(OSError):
            who.settimeout(0.5)
            if who.recv(len(LOOK)) == LOOK:
                for broker in self._healed():
                    broker.kill()  # it is ending, and may not be all gone
                    broker.start(wait=False)
                who.sendall(DONE)

    def _healed(self) -> list[BrokerProcess]:
        found: dict[int, None] = {}
        faults = self._directory.all()
        for spec in faults:
            if not spec.is_healed or not spec.has_ended_brokers or spec.number in self._seen:
                continue
            if spec.kind == "sync-error" and any(fails_to_sync(faults, broker) for broker in spec.brokers):
                continue
            self._seen.add(spec.number)
            found.update(dict.fromkeys(spec.brokers))
        return [self._cluster.broker(broker) for broker in found]

    def close(self) -> None:
        self._asking.close()
