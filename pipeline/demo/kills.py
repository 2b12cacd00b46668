"""Who is killed while the jobs run: the leader of most partitions, and an executor of Spark's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs.running import Say
from raftlog.testing import Cluster

EXECUTOR = b"CoarseGrainedExecutorBackend"
DOWN_SECONDS = 3.0
LOOK_SECONDS = 0.2


class Kill(NamedTuple):
    """Who was killed with -9, when (seconds since 1970), and how many rows were acknowledged by then."""

    who: str
    at: float
    acknowledged: int


class Scene(Protocol):
    """What happens around the killer."""

    @property
    def acknowledged(self) -> int: ...

    def is_under_way(self) -> bool: ...

    def is_read(self) -> bool: ...


class Killer(threading.Thread):
    """Kills a broker at a third of the rows and an executor at two thirds, once every job has done some."""

    def __init__(self, brokers: Cluster, driver_pid: int, scene: Scene, say: Say) -> None:
        super().__init__(daemon=True)
        self.kills: list[Kill] = []
        self.failure: Exception | None = None
        self._brokers = brokers
        self._driver_pid = driver_pid
        self._scene = scene
        self._say = say
        self._over = threading.Event()

    def run(self) -> None:
        try:
            if self._when(self._scene.is_under_way):
                self._kill_broker()
            if self._when(self._scene.is_read):
                self._kill_executor()
        except Exception as error:  # noqa: BLE001 - told by whoever started it
            self.failure = error

    def stop(self) -> None:
        """When this returns, every broker runs."""
        self._over.set()
        self.join()

    def _when(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._over.wait(LOOK_SECONDS):
                return False
        return True

    def _kill_broker(self) -> None:
        node = leader_of_most(self._brokers.bootstrap_servers)
        broker = self._brokers.broker(node)
        broker.kill()
        self._note(f"broker {node}")
        self._over.wait(DOWN_SECONDS)
        broker.start()
        self._say(f"broker {node} runs again")

    def _kill_executor(self) -> None:
        pids = [pid for pid in descendants(self._driver_pid) if is_executor(pid)]
        if not pids:
            self._say("there is no executor of its own to be killed: Spark runs in one process")
            return
        os.kill(pids[0], signal.SIGKILL)
        self._note(f"an executor of Spark (pid {pids[0]})")

    def _note(self, who: str) -> None:
        self.kills.append(Kill(who, time.time(), self._scene.acknowledged))
        self._say(f"killed {who} with -9, at {self.kills[-1].acknowledged:,} acknowledged")


def leader_of_most(bootstrap: str) -> int:
    with SyncClient(bootstrap) as client:
        topics = client.admin.metadata().topics
    leads = Counter(each.leader_id for topic in topics for each in topic.partitions if each.leader_id > 0)
    return max(sorted(leads), key=lambda node: leads[node]) if leads else 1


def descendants(pid: int) -> Iterator[int]:
    """All processes that this one has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        waiting += children
        yield from children


def is_executor(pid: int) -> bool:
    try:
        return EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


