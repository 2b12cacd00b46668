"""What is known of a process by its number alone."""

from __future__ import annotations

import os
from pathlib import Path


def lives(pid: int) -> bool:
    """Whether it runs or stands still. One that has ended and that nobody has collected does not live."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return _state(pid) != "Z"


def is_stopped(pid: int) -> bool:
    """Whether a process stands still (SIGSTOP), where this system tells."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """The letter that proc(5) has for it; "" where this system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
