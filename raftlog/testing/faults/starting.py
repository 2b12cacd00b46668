"""Brokers that are started again: which of them can serve, with the faults that are in force."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.spec import BACK_LAST, CLIENTS, CUTS, FaultSpec
from raftlog.testing.pids import is_stopped

if TYPE_CHECKING:
    from raftlog.testing.clusters import Cluster


def wait_for_brokers(cluster: Cluster) -> None:
    """Return when all serve that were started and can. Raises BrokerDied.

    Not waited for is one that other faults keep from serving: it is cut off from a broker, its disk is full or fails,
    something holds it down although it was started, or too few run for a majority. Who heals the last of that will wait
    for it.
    """
    if not any(broker.is_starting for broker in cluster.brokers):
        return
    in_force = [spec for spec in FaultDirectory(cluster.directory).all() if not spec.is_healed]
    hindered = {broker for spec in in_force if spec.kind in ("full-disk", *BACK_LAST) for broker in spec.brokers}
    for spec in in_force:
        if spec.kind in CUTS:
            hindered |= {end for link in spec.links if CLIENTS not in link for end in link}
    awake = [broker for broker in cluster.brokers if broker.running and not is_stopped(broker.pid)]
    if 2 * len(awake) > len(cluster.brokers):
        for broker in awake:
            if broker.is_starting and broker.node_id not in hindered:
                broker.wait_until_ready()


def fails_to_sync(faults: Iterable[FaultSpec], broker: int) -> bool:
    """Whether the broker's disk fails now: it is not started again before that is over."""
    return any(spec.kind == "sync-error" and spec.is_at(broker) for spec in faults)
