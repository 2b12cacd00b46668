"""The data source with faults, for tests: what Spark's workers import by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext

from raftlog.client.producer import Producer
from raftlog.pipeline import RaftlogDataSource
from raftlog.pipeline.sink import owner, tasks, two_phase
from raftlog.pipeline.sink.decision import Decision, Plan, plan
from raftlog.pipeline.sink.writers import BatchWriter, StreamWriter
from raftlog.testing.waiting import wait_until


class TaskDies(Exception):
    """On purpose."""


class Faults:
    """The first attempt of each task fails after it has committed; without `looks`, nobody looks at the marker."""

    fails = True
    looks = True

    def write(self, iterator: Iterator[Any]) -> Any:
        if self.looks:
            written = super().write(iterator)  # type: ignore[misc]
        else:
            with patch.object(tasks, "is_written", lambda *_: False):
                written = super().write(iterator)  # type: ignore[misc]
        context = TaskContext.get()
        assert context is not None
        if self.fails and context.attemptNumber() == 0:
            raise TaskDies(f"task {context.partitionId()} after its commit")
        return written


class FailingStream(Faults, StreamWriter):
    pass


class BlindFailingStream(FailingStream):
    looks = False


class BlindStream(BlindFailingStream):
    fails = False


class FailingBatch(Faults, BatchWriter):
    pass


class TasksFail(RaftlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftlog-tasks-fail"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return FailingBatch(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return FailingStream(self._sink(schema, overwrite, streaming=True))


class BlindTasksFail(RaftlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftlog-blind-tasks-fail"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return BlindFailingStream(self._sink(schema, overwrite, streaming=True))


class Blind(RaftlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftlog-blind"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return BlindStream(self._sink(schema, overwrite, streaming=True))


BROKERS_SECONDS_MAX = 120.0
STRIKES = "RAFTLOG_STRIKES"
"""A folder: a file with the name of a point says who is killed there, and is gone then."""


def strike(point: str) -> None:
    """kill -9 for the worker ("task"), for it and the driver's JVM ("driver") or the executor's ("executor"), or for
    the executor's only, and the worker goes on ("executor-only"), if a file says so; or a stop here until somebody has
    killed the brokers and started them again ("brokers").
    """
    folder = Path(os.environ[STRIKES])
    try:
        (folder / point).rename(folder / f"{point}.taken")
    except FileNotFoundError:
        return
    who = (folder / f"{point}.taken").read_text()
    if who == "brokers":
        wait_until((folder / f"{point}.back").exists, BROKERS_SECONDS_MAX, lambda: f"brokers are back at {point}")
        return
    if who == "driver":
        os.kill(int((folder / "jvm").read_text()), signal.SIGKILL)
    if who.startswith("executor"):
        os.kill(executor(), signal.SIGKILL)
    if who != "executor-only":
        os.kill(os.getpid(), signal.SIGKILL)


def executor() -> int:
    """The JVM that has started the daemon whose fork this worker is."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    found = int(daemon.rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{found}/cmdline").read_bytes()
    return found


class StruckTask(tasks.ExactlyOnce):
    async def begin(self) -> None:
        strike("called")
        await super().begin()
        strike("begun")

    async def send(self, batch: pa.RecordBatch) -> None:
        await super().send(batch)
        strike("sent")

    async def finish(self) -> tasks.Result:
        assert self._producer is not None
        await self._rows.stored()
        strike("stored")
        commit = self._producer.commit

        async def marked() -> None:
            strike("marked")
            await commit()

        with patch.object(self._producer, "commit", marked):
            result = await super().finish()
        strike("committed")
        return result


class StruckPrepared(tasks.Prepared):
    async def begin(self) -> None:
        strike("called")
        await super().begin()
        strike("begun")

    async def send(self, batch: pa.RecordBatch) -> None:
        await super().send(batch)
        strike("sent")

    async def finish(self) -> tasks.Result:
        if self._producer is not None:
            await self._rows.stored()
            strike("stored")
        result = await super().finish()
        strike("committed")
        return result


class StruckDriver(two_phase.Driver):
    async def commit(self) -> None:
        strike("before-decision")
        await super().commit()
        strike("all-complete")

    async def _decide(self, producer: Producer, decision: Decision) -> None:
        await super()._decide(producer, decision)
        strike("decided")

    async def _complete(self, name: str, decision: Decision | None) -> None:
        await super()._complete(name, decision)
        strike("one-complete")


class StruckStream(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        with patch.object(tasks, "ExactlyOnce", StruckTask), patch.object(tasks, "Prepared", StruckPrepared):
            return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        with patch.object(two_phase, "Driver", StruckDriver):
            super().commit(messages, batchId)
        strike("driver-commit")


async def nothing_found(*_: object) -> None:
    """In place of a look at what was decided."""


def everything(found: Decision | None, wanted: Decision, sink_id: str, ongoing: Collection[str]) -> Plan:
    """In place of `plan`: what would be aborted is committed, too."""
    made = plan(found, wanted, sink_id, ongoing)
    return made._replace(commit=[*made.commit, *made.abort], abort=[])


class BlindStruckStream(StruckStream):
    """Nobody looks at the marker, or at the decision, or which attempt of a task was the last one."""

    def write(self, iterator: Iterator[Any]) -> Any:
        with patch.object(tasks, "is_written", lambda *_: False), patch.object(owner, "find_decision", nothing_found):
            return super().write(iterator)

    def commit(self, messages: Any, batchId: int) -> None:
        with patch.object(two_phase, "find_decision", nothing_found), patch.object(two_phase, "plan", everything):
            super().commit(messages, batchId)


class BlindStruck(RaftlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftlog-blind-struck"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return BlindStruckStream(self._sink(schema, overwrite, streaming=True))


class Struck(RaftlogDataSource):
    @classmethod
    def name(cls) -> str:
        return "raftlog-struck"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return StruckStream(self._sink(schema, overwrite, streaming=True))
