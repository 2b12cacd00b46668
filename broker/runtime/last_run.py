"""What a broker remembers of its last run: under which epoch it served, and on which start of the machine.

With a clean stop the epoch proves that no record was lost. After the death of the process alone the same start of the
machine proves it as well: what was written is in the page cache, whoever wrote it. A machine that lost power proves
nothing, and neither does a run during which a sync failed (the kernel may have dropped what it could not write) or
something could not be read. A disk that was merely full took nothing away.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from raftlog.broker.ports import Disk
from raftlog.broker.store.files import read_whole, replace_whole
from raftlog.metadata.commands import NO_EPOCH
from raftlog.wire.ids import BrokerEpoch

NAME = "last-run.json"


class LastRun(NamedTuple):
    """`broker_epoch`: NO_EPOCH when nothing is known."""

    broker_epoch: BrokerEpoch = NO_EPOCH
    boot_id: str = ""


def read_last_run(disk: Disk, directory: str) -> LastRun:
    """What the file says; nothing, when it is not there or cannot be read."""
    try:
        if NAME not in disk.list_directory(directory):
            return LastRun()
        found = json.loads(read_whole(disk, f"{directory}/{NAME}"))
        return LastRun(BrokerEpoch(int(found["broker_epoch"])), str(found["boot_id"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LastRun()


def write_last_run(disk: Disk, directory: str, run: LastRun) -> None:
    """Replace the file. Raises OSError."""
    replace_whole(disk, f"{directory}/{NAME}", json.dumps(run._asdict()).encode(), sync=True)


def forget_last_run(disk: Disk, directory: str) -> None:
    """What is on the disk is not to be relied upon. Raises OSError."""
    if NAME in disk.list_directory(directory):
        disk.remove(f"{directory}/{NAME}")
        disk.sync_directory(directory)
