"""Which version of raftlog served from a directory last, for the words to somebody who starts an older one.

Nothing is decided by it: what this version can read is told by what it finds.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "raftlog.version"


def note_version(directory: str, version: str) -> None:
    """Write it down, unless that is what the file says. Raises OSError."""
    if read_version(directory) == version:
        return
    path = Path(directory, NAME)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{version}\n")
    os.replace(temporary, path)


def read_version(directory: str) -> str:
    """What the file says; "" when it is not there or cannot be read."""
    try:
        return Path(directory, NAME).read_text()[:100].strip()
    except (OSError, UnicodeDecodeError):
        return ""
