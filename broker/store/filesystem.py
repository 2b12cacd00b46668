"""Syncing a whole file system at once: syncfs(2), where it tells the truth.

syncfs fails, like fsync, when anything could not be written since the descriptor was opened: since Linux 5.8 for data,
since 5.17 also for what the file system keeps of its own (its journal). A file system that lies on another one
(overlayfs) or on a server does not hear of all their failures, so only those are asked that write to a device
themselves.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Final

_LEAST_KERNEL: Final = (5, 17)
_MAGIC: Final = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs"}
"""The first field of struct statfs (linux/magic.h); ext2 and ext3 have ext4's."""
_STATFS_BYTES: Final = 256
"""More than struct statfs has anywhere."""


def sync_filesystem(descriptor: int) -> bool:
    """Return when everything that was written to the descriptor's file system, names too, is on stable storage.

    False, with nothing done, where that cannot be relied upon. Raises OSError (EIO) when anything at all could not be
    written since the descriptor was opened.
    """
    if sys.platform != "linux" or _kernel(os.uname().release) < _LEAST_KERNEL:
        return False
    # Imported when many logs are closed: a broker is to start fast.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if libc.fstatfs(descriptor, found) != 0 or ctypes.c_long.from_buffer(found).value not in _MAGIC:
        return False
    if libc.syncfs(descriptor) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        return False
    raise OSError(errno.EIO, f"syncing the file system failed: {os.strerror(number)}")


def _kernel(release: str) -> tuple[int, int]:
    numbers = release.split("-")[0].split(".")
    try:
        return int(numbers[0]), int(numbers[1])
    except (ValueError, IndexError):
        return 0, 0
