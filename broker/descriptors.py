"""How the files that this process may have open are shared out, and how large a file may be.

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

SIZE_MIN: Final = (1 << 31) - 1
"""Bytes of a file: the largest `segment.bytes`."""


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


def raise_limits() -> str:
    """Take what the system allows without asking anybody: the usual 1024 files are for programs that use select().

    What is too little for a broker, and what to do; empty when it is enough.
    """
    if _raised(resource.RLIMIT_NOFILE) < LIMIT_MIN:
        return (
            f"this process may open fewer than {LIMIT_MIN} files: logs and clients would take them from each other."
            " Raise the hard limit (ulimit -Hn, LimitNOFILE)"
        )
    if _raised(resource.RLIMIT_FSIZE) < SIZE_MIN:
        return (
            "a file of this process may not have 2 GiB, and a segment may: its directory would count as full."
            " Raise the hard limit (ulimit -Hf, LimitFSIZE)"
        )
    return ""


def _raised(limit: int) -> int:
    soft, hard = resource.getrlimit(limit)
    if soft != hard:
        resource.setrlimit(limit, (hard, hard))
    return 1 << 62 if hard == resource.RLIM_INFINITY else hard
