"""What happened in a run, step by step: its hash says whether two runs were the same, its text where they parted."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

_LINES_PER_UPDATE = 512


class Trace:
    """Lines of a run, in order. The last `kept` of them stay readable (all of them when `kept` is None)."""

    __slots__ = ("_hash", "_kept", "_lines", "_waiting", "count")

    def __init__(self, kept: int | None = 0) -> None:
        self._hash = blake2b(digest_size=16)
        self._waiting: list[tuple[object, ...]] = []
        self._lines: list[tuple[object, ...]] = []
        self._kept = kept
        self.count = 0

    def add(self, *fields: object) -> None:
        """Note a step: numbers and short strings, whose text must be the same in every process."""
        self._waiting.append(fields)
        if len(self._waiting) >= _LINES_PER_UPDATE:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.count += len(waiting)
        self._hash.update("".join(f"{fields!r}\n" for fields in waiting).encode())
        if self._kept != 0:
            self._lines.extend(waiting)
            if self._kept is not None:
                del self._lines[: -self._kept]

    def digest(self) -> str:
        """The hash of all lines so far, as hexadecimal digits."""
        self._flush()
        return self._hash.hexdigest()

    def lines(self) -> Iterator[str]:
        """The lines that were kept."""
        self._flush()
        for fields in self._lines:
            first, *rest = fields
            when = f"{first:12.6f}" if isinstance(first, float) else str(first)
            yield " ".join([when, *map(str, rest)])
