"""What a broker runs on: clocks, disks, randomness. One value for the machine at hand; a simulation brings its own."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from raftlog.broker.ports import Clock, Disk
from raftlog.broker.store.disk import OsDisk

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)


@dataclass(slots=True)
class Platform:
    """`disk` holds the data and the metadata log. `boot_id` is another one after each start of the operating system; ""
    where nobody knows.
    """

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=OsDisk)
    rng: random.Random = field(default_factory=random.SystemRandom)
    boot_id: str = ""


def this_platform() -> Platform:
    """The machine that this process runs on."""
    try:
        boot_id = BOOT_ID.read_text().strip()
    except OSError:
        boot_id = ""
    return Platform(boot_id=boot_id)
