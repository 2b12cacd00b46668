"""How the cluster is, once a second, for the report: partitions, quorum, groups, brokers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from raftlog.client.core.errors import KafkaError
from raftlog.client.offsets import EARLIEST, LATEST
from raftlog.client.sync import SyncClient
from raftlog.linearizability.harness.systems.system import System
from raftlog.linearizability.harness.workloads.catalogue import Workload

EVERY_SECONDS = 1.0
ANSWER_SECONDS = 0.8


class Sampler:
    """A thread between `start` and `stop`. `write` takes a line of samples.jsonl."""

    def __init__(self, system: System, workload: Workload, write: Callable[[dict[str, Any]], None]) -> None:
        self._system = system
        self._workload = workload
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verify-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        client = SyncClient(self._system.bootstrap, client_id="verify-sampler", timeout=ANSWER_SECONDS)
        try:
            while not self._over.wait(EVERY_SECONDS):
                self._write(self._sample(client))
        finally:
            client.close()

    def _sample(self, client: SyncClient) -> dict[str, Any]:
        sample: dict[str, Any] = {"time": time.monotonic_ns(), "partitions": self._partitions(client)}
        sample["quorum"] = _asked(lambda: _quorum(client))
        groups = {name: _asked(lambda name=name: _committed(client, name)) for name in self._workload.groups}  # type: ignore[misc]
        sample["groups"] = {name: found for name, found in groups.items() if found is not None}
        sample["brokers"] = {str(broker): state for broker, state in self._system.states().items()}
        return sample

    def _partitions(self, client: SyncClient) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, count in self._workload.topics.items():
            all_of_it = [(name, index) for index in range(count)]
            topic = _asked(lambda name=name: client.admin.topic(name))  # type: ignore[misc]
            ends = _asked(lambda: client.admin.offsets_at(all_of_it, LATEST, read_committed=False)) or {}  # noqa: B023
            stable = _asked(lambda: client.admin.offsets_at(all_of_it, LATEST)) or {}  # noqa: B023
            starts = _asked(lambda: client.admin.offsets_at(all_of_it, EARLIEST)) or {}  # noqa: B023
            for each in topic.partitions if topic is not None else ():
                at = (name, each.partition_index)
                found[f"{name}-{each.partition_index}"] = {
                    "leader": each.leader_id if each.leader_id >= 0 else None,
                    "epoch": each.leader_epoch if each.leader_epoch >= 0 else None,
                    "isr": sorted(each.isr_nodes),
                    "log_start": starts.get(at),
                    "high_watermark": ends.get(at),
                    "last_stable": stable.get(at),
                    "log_end": None,
                }
        return found


def _asked(question: Callable[[], Any]) -> Any:
    """The answer; None when there is none in time."""
    try:
        return question()
    except (KafkaError, OSError, ValueError):
        return None


def _quorum(client: SyncClient) -> dict[str, Any]:
    quorum = client.admin.describe_quorum()
    return {"leader": quorum.leader, "term": quorum.term}


def _committed(client: SyncClient, group: str) -> dict[str, int]:
    found = client.admin.committed_offsets(group)
    return {f"{topic}-{index}": offset for (topic, index), offset in sorted(found.items())}
