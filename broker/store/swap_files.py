"""What an interrupted replacement of segments by compacted ones has left in a log's directory."""

from __future__ import annotations

import logging

from raftlog.broker.store.files import STAGED_SUFFIX
from raftlog.broker.store.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, offset_of
from raftlog.broker.store.segment import LOG_SUFFIX, SUFFIXES, Segment
from raftlog.broker.store.store import Store

logger = logging.getLogger("raftlog.recovery")


def complete_swaps(store: Store, directory: str) -> list[str]:
    """Finish or undo what a crash interrupted, as Kafka does; the names that are left. Raises OSError.

    `.deleted` files go. A `.swap` below every `.cleaned` belongs to a replacement that had been decided: it takes the
    place of all segments that it covers. Every other `.swap` and all `.cleaned` files go.
    """
    disk = store.disk
    names = disk.list_directory(directory)
    # One look at all names: ten thousand logs are opened at a start.
    together = "/".join([*names, ""])
    if not any(f"{suffix}/" in together for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, STAGED_SUFFIX)):
        return names
    cleaned = [offset for name in names if name.endswith(CLEANED_SUFFIX) and (offset := offset_of(name)) is not None]
    lowest_cleaned = min(cleaned, default=1 << 63)
    swaps = []
    deleted = [name for name in names if name.endswith(DELETED_SUFFIX)]
    if deleted:
        # Nothing was interrupted: they wait for file.delete.delay.ms, and there may be hundreds.
        logger.info("log=%s removing %d files of segments that were deleted before the stop", directory, len(deleted))
    for name in deleted:
        disk.remove(f"{directory}/{name}")
    for name in names:
        undone = name.endswith(SWAP_SUFFIX) and (offset_of(name) or 0) >= lowest_cleaned
        if undone or name.endswith((CLEANED_SUFFIX, STAGED_SUFFIX)):
            logger.info("log=%s removing %s, left by what was interrupted", directory, name)
            disk.remove(f"{directory}/{name}")
        elif name.endswith(SWAP_SUFFIX):
            swaps.append(name)
    _replace_by_swaps(store, directory, swaps)
    disk.sync_directory(directory)
    return disk.list_directory(directory)


def _replace_by_swaps(store: Store, directory: str, swaps: list[str]) -> None:
    bases = [
        offset for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and (offset := offset_of(name)) is not None
    ]
    if bases:
        last = Segment.load(store.files, directory, max(bases), suffix=SWAP_SUFFIX)
        low, high = min(bases), max(last.next_offset(), max(bases) + 1)
        last.close()
        for name in store.disk.list_directory(directory):
            offset = offset_of(name)
            if name.endswith(SUFFIXES) and offset is not None and low <= offset < high:
                store.disk.remove(f"{directory}/{name}")
    for name in swaps:
        logger.info("log=%s finishing the replacement of %s", directory, name)
        store.disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
