"""How the files that this process may have open are shared out.

Logs and clients both take what they can get. If clients took all, there would be none left to write a checkpoint with;
a directory that cannot be written is a failed disk, and a broker whose last disk failed stops. So whoever can connect
often enough could stop every broker. Therefore each has a share, and something is left for all the rest.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

from raftlog.broker.store.files import MAX_OPEN_FILES

LOGS_SHARE: Final = 2
"""Logs get at most one descriptor in so many."""

LOGS_MIN: Final = 16
"""Fewer, and every append would open files."""

OTHERS_MIN: Final = 128
"""Peers of the quorum, leaders that are followed, listeners, checkpoints, directories, probes of /health (64)."""

OTHERS_SHARE: Final = 16
"""One in so many is left for the rest, if that is more: what is being sent stays open when its log gives it up."""

CONNECTIONS_MIN: Final = 32
"""However low the limit is: without connections there is no broker."""

LIMIT_MIN: Final = 256
"""With fewer the shares are too small: a few dozen connections would take what a checkpoint needs."""


class Shares(NamedTuple):
    """Descriptors for each."""

    logs: int
    connections: int


def shares() -> Shares:
    """Of the limit as it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 30
    logs = max(LOGS_MIN, min(MAX_OPEN_FILES, soft // LOGS_SHARE))
    others = max(OTHERS_MIN, soft // OTHERS_SHARE)
    return Shares(logs, max(CONNECTIONS_MIN, soft - logs - others))


def raise_limit() -> bool:
    """Take as many as the system allows without asking anybody: the usual 1024 is for programs that use select().

    Whether they are enough for a broker.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard == resource.RLIM_INFINITY or hard >= LIMIT_MIN
