"""What can happen to one broker: its process, its disk, its clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from raftlog.testing.faults.fault import Fault, Owner
from raftlog.testing.faults.spec import FaultSpec
from raftlog.testing.faults.starting import fails_to_sync
from raftlog.testing.pids import is_stopped
from raftlog.testing.waiting import wait_until

if TYPE_CHECKING:
    from raftlog.testing.process import BrokerProcess

END_SECONDS_MAX = 10.0


class BrokerFaults:
    """One broker. `kill`, `power_cut`, `pause` and `stop` last until `heal`, or so many `seconds`."""

    def __init__(self, faults: Owner, broker: int) -> None:
        self._faults = faults
        self.id = broker
        self.disk = DiskFaults(faults, self)
        self.clock = ClockFaults(faults, self)

    def __repr__(self) -> str:
        return f"<broker {self.id}>"

    @property
    def process(self) -> BrokerProcess:
        return self._faults.cluster.broker(self.id)

    def kill(self, seconds: float | None = None) -> Fault:
        """kill -9. It is started again when the fault is healed."""
        return self._down("kill", self.process.kill, seconds)

    def stop(self, seconds: float | None = None) -> Fault:
        """SIGTERM: it hands over what it leads, and ends. It is started again when the fault is healed."""
        return self._down("stop", self.process.stop, seconds)

    def restart(self) -> Fault:
        """Stop it in order, and start it again at once."""
        fault = self.stop()
        fault.heal()
        return fault

    def power_cut(self, seconds: float | None = None) -> Fault:
        """The machine dies: what was not synced is lost, from the metadata too. It is started again when healed."""
        return self._cut_power("power", seconds)

    def pause(self, seconds: float | None = None) -> Fault:
        """SIGSTOP: it lives, holds its connections and answers nothing. It goes on when the fault is healed."""
        process = self._awake()
        fault = self._faults.add(FaultSpec("freeze", brokers=[self.id]), undo=self._resume)
        with self._faults.directory.held():
            process.pause()
            if sys.platform == "linux":
                wait_until(lambda: is_stopped(process.pid), END_SECONDS_MAX, lambda: f"broker {self.id} stops")
        self._faults.happened(fault)
        return fault.for_seconds(seconds)

    def _running(self) -> BrokerProcess:
        if not self.process.running:
            raise RuntimeError(f"broker {self.id} does not run: heal what ended it first")
        return self.process

    def _awake(self) -> BrokerProcess:
        process = self._running()
        if is_stopped(process.pid):
            raise RuntimeError(f"broker {self.id} stands still: heal what has paused it first")
        return process

    def _resume(self) -> None:
        if self.process.running:
            self.process.resume()

    def _down(self, kind: str, end: Callable[[], object], seconds: float | None) -> Fault:
        self._running()
        fault = self._faults.add(FaultSpec(kind, brokers=[self.id]), undo=self._start)
        end()
        self._faults.happened(fault)
        return fault.for_seconds(seconds)

    def _cut_power(self, kind: str, seconds: float | None) -> Fault:
        process = self._awake()
        fault = self._faults.add(FaultSpec(kind, brokers=[self.id]), undo=self._start)
        try:
            wait_until(lambda: not process.running, END_SECONDS_MAX, lambda: f"broker {self.id} loses its power")
        finally:
            process.kill()  # one that was slower than that would do it when nobody starts it again
        return fault.for_seconds(seconds)

    def _start(self) -> None:
        if not self.process.running:
            self.process.start(wait=False)


class DiskFaults:
    """The disk of one broker."""

    def __init__(self, faults: Owner, broker: BrokerFaults) -> None:
        self._faults = faults
        self._broker = broker

    def full(self) -> Fault:
        """Nothing may grow beyond what is freed meanwhile: ENOSPC. There are free blocks, as with a quota."""
        return self._add(FaultSpec("full-disk"))

    def slow(self, seconds: float) -> Fault:
        """Each sync takes so much longer."""
        return self._add(FaultSpec("slow-disk", seconds=seconds))

    def fail_sync(self) -> Fault:
        """Each sync fails: EIO. A broker that this has met is started again when the fault is healed."""
        return self._faults.add(FaultSpec("sync-error", brokers=[self._broker.id]), undo=self._mend)

    def tear(self, seconds: float | None = None) -> Fault:
        """A power cut in the middle of writes: of what was not synced, each file keeps a part that the seed chooses."""
        return self._broker._cut_power("tear", seconds)

    def flip_bit(self, topic: str, partition: int = 0, segment: int = 0) -> Fault:
        """A bit that the seed chooses changes in a segment of a partition (0 is the oldest, -1 the newest).

        Raises FileNotFoundError when the broker has no record of it. It is flipped back when the fault is healed, where
        the broker has not replaced it meanwhile.
        """
        folder = self._broker.process.data_dir / f"{topic}-{partition}"
        files = [file for file in sorted(folder.glob("*.log")) if file.stat().st_size]
        if not files:
            raise FileNotFoundError(f"no records in {folder}")
        if not -len(files) <= segment < len(files):
            raise FileNotFoundError(f"no segment {segment} with records in {folder}: there are {len(files)}")
        file = files[segment]
        bit = Random(self._faults.seed).randrange(8 * file.stat().st_size)
        damaged = _flip(file, bit)
        spec = FaultSpec("rot", brokers=[self._broker.id], topic=topic, partition=partition, amount=bit)
        fault = self._faults.add(spec, undo=lambda: _flip(file, bit, damaged))
        self._faults.happened(fault, size=1)
        return fault

    def _mend(self) -> None:
        directory, process = self._faults.directory, self._broker.process
        directory.tell()  # from here on syncs succeed, unless another fault is in force
        faults = directory.all()
        is_held_down = not process.running and (process.returncode or 0) <= 0
        if is_held_down or fails_to_sync(faults, self._broker.id):
            return
        own = [spec for spec in faults if spec.kind == "sync-error" and self._broker.id in spec.brokers]
        if any(spec.evidence.fired and spec.ended >= process.started_at for spec in own):
            process.kill()  # it is ending, and may not be all gone
            process.start(wait=False)

    def _add(self, spec: FaultSpec) -> Fault:
        spec.brokers = [self._broker.id]
        return self._faults.add(spec)


class ClockFaults:
    """The wall clock of one broker. The clock that only goes forward stays as it is, as on a machine."""

    def __init__(self, faults: Owner, broker: BrokerFaults) -> None:
        self._faults = faults
        self._broker = broker

    def jump(self, seconds: float) -> Fault:
        """It is so many seconds off (below zero: behind)."""
        return self._faults.add(FaultSpec("clock", brokers=[self._broker.id], amount=seconds))

    def skew(self, rate: float) -> Fault:
        """It goes `rate` times as fast."""
        return self._faults.add(FaultSpec("clock", brokers=[self._broker.id], jitter=rate - 1.0))


def _flip(file: Path, bit: int, only: bytes = b"") -> bytes:
    """The byte that has it now. `only`: nothing happens to another byte than this."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return b""  # retention has removed it
    try:
        byte = os.pread(descriptor, 1, bit // 8)
        if not byte or byte != (only or byte):
            return byte
        flipped = bytes([byte[0] ^ 1 << bit % 8])
        os.pwrite(descriptor, flipped, bit // 8)
        return flipped
    finally:
        os.close(descriptor)
