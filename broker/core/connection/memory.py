"""The memory that connections receive requests into: one shared buffer, and a bounded amount for large requests.

A request that does not fit in the shared buffer, or arrives in pieces, is promised the room for all of it before more
of it is read, so that requests that are half there never wait for each other. Its pages are taken as they fill. Small
requests have a share that large ones cannot take, and who waits for less is served first. Whose request hardly moves
while others wait for memory loses it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final, Protocol, TypeAlias

from raftlog.broker.core.connection.limits import (
    ARRIVING_BYTES_MAX,
    KEPT_PART,
    PRESSED_RECEIVE_BYTES,
    RECEIVE_BUFFER_BYTES,
    SLOW_PART,
    SLOW_SECONDS,
    SMALL_REQUEST_BYTES,
    SMALL_REQUESTS_SHARE,
    SPARE_BUFFER_BYTES_MAX,
    WAITING_BYTES_PER_SECOND,
)
from raftlog.wire.errors import InvariantViolation


class Holder(Protocol):
    """Who has a large request on the way, or waits to."""

    @property
    def arrived_bytes(self) -> int:
        """How much of it is in its buffer."""

    def resume(self) -> None:
        """There is memory for it: `take` gives it now."""

    def lose_memory(self) -> None:
        """Others need it: give it back."""


class _Share:
    """What one holder has. `arrived_bytes`: at the beginning of the window in which holders are looked at; -1 if it got
    its memory since."""

    __slots__ = ("arrived_bytes", "buffer", "size")

    def __init__(self, buffer: mmap) -> None:
        self.buffer = buffer
        self.size = len(buffer)
        self.arrived_bytes = -1


_Wait: TypeAlias = "tuple[float, int, int, Holder]"
"""Until when it may be passed by, a number, how much it waits for, and who."""


class ReceiveMemory:
    """What all connections of a server receive into.

    Invariants: at most `bytes_max` are given out, or more to one holder alone; at most SPARE_BUFFER_BYTES_MAX lie
    spare; who waits could not be given what it waits for.
    """

    __slots__ = (
        "_call_later",
        "_call_soon",
        "_is_looking",
        "_now",
        "_numbers",
        "_shares",
        "_small_bytes",
        "_spare",
        "_spare_bytes",
        "_waiting",
        "_waits",
        "_window_ends",
        "bytes_max",
        "given_out_bytes",
        "kept_bytes",
        "offered",
        "shared",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        now: Callable[[], float],
        bytes_max: int = ARRIVING_BYTES_MAX,
    ) -> None:
        """`call_soon` has to call what it is given in a later turn, `call_later` after so many seconds."""
        self.shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.offered = self.shared
        """The part of it that is received into: less of it while somebody waits for memory, or much is kept."""
        self.given_out_bytes = 0
        self.kept_bytes = 0
        """What was received, and lies with the connections until they can look at it."""
        self.bytes_max = bytes_max
        self._call_soon, self._call_later, self._now = call_soon, call_later, now
        self._shares: dict[Holder, _Share] = {}
        self._small_bytes = 0
        self._spare: dict[int, list[mmap]] = {}
        self._spare_bytes = 0
        # Who waits for little, and who for much; those that are not in `_waits` any more are passed over.
        self._waiting: tuple[list[_Wait], list[_Wait]] = ([], [])
        self._waits: dict[Holder, int] = {}
        self._numbers = 0
        self._is_looking = False
        self._window_ends = 0.0

    # ── taking and giving back ────────────────────────────────────────────────────────────────────────────

    def take(self, holder: Holder, size: int) -> mmap | None:
        """A buffer of at least `size` bytes for a request of `holder`. None if there is not so much: `holder` is
        resumed when it is its turn, and asks again.
        """
        share = self._shares.get(holder)
        if share is not None:
            return share.buffer
        if holder in self._waits:
            return None
        size = _capacity(size)
        if not self._head(size <= SMALL_REQUEST_BYTES) and self._fits(size):
            return self._give(holder, size)
        self._numbers += 1
        wait = (self._now() + size / WAITING_BYTES_PER_SECOND, self._numbers, size, holder)
        heappush(self._waiting[size > SMALL_REQUEST_BYTES], wait)
        self._waits[holder] = self._numbers
        self._offer()
        if not self._is_looking:
            self._begin_window()
        return None

    def give_back(self, holder: Holder) -> None:
        """Nothing is kept for `holder` any more, who may have had nothing; who waits for memory gets it."""
        self._waits.pop(holder, None)
        share = self._shares.pop(holder, None)
        if share is not None:
            self.given_out_bytes -= share.size
            if share.size <= SMALL_REQUEST_BYTES:
                self._small_bytes -= share.size
                if self._spare_bytes + share.size <= SPARE_BUFFER_BYTES_MAX:
                    self._spare.setdefault(share.size, []).append(share.buffer)
                    self._spare_bytes += share.size
        if self.offered is not self.shared:
            self._serve_waiting()

    def keep(self, more: int) -> None:
        """So many bytes more, or less, are kept by a connection."""
        self.kept_bytes += more
        self._offer()

    @property
    def _is_pressed(self) -> bool:
        return bool(self._waits) or self.kept_bytes > self.bytes_max // KEPT_PART

    def _offer(self) -> None:
        self.offered = self.shared[:PRESSED_RECEIVE_BYTES] if self._is_pressed else self.shared

    def _give(self, holder: Holder, size: int) -> mmap:
        spare = self._spare.get(size)
        if spare:
            self._spare_bytes -= size
            buffer = spare.pop()
        else:
            # Not a bytearray: that would be filled with zeros, all of it, before a byte has come.
            buffer = mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self._shares[holder] = _Share(buffer)
        self.given_out_bytes += size
        if size <= SMALL_REQUEST_BYTES:
            self._small_bytes += size
        return buffer

    def _fits(self, size: int) -> bool:
        """Whether so much may be given out now, to whom nobody goes before in its class."""
        left = self.bytes_max - self.given_out_bytes
        if size > left:
            return not self._shares  # one request may always arrive
        share = self.bytes_max // SMALL_REQUESTS_SHARE
        if size <= SMALL_REQUEST_BYTES:
            # While a large one waits, small ones keep to their share, and to what is beside it.
            large = self._head(False)
            return not large or self._small_bytes + size <= min(share, self.bytes_max - large[0][2])
        has_large = self.given_out_bytes > self._small_bytes
        return not has_large or size <= left - max(0, share - self._small_bytes)

    def _head(self, small: bool) -> list[_Wait]:
        """Who waits for little, or for much, the first one first; empty when nobody does."""
        waiting = self._waiting[not small]
        while waiting and self._waits.get(waiting[0][3]) != waiting[0][1]:
            heappop(waiting)
        return waiting

    def _serve_waiting(self) -> None:
        # What large ones get out of the way may let small ones pass, and the other way round.
        while self._serve(small=True) or self._serve(small=False):
            pass
        self._offer()

    def _serve(self, *, small: bool) -> bool:
        """Whether the first who waits for little, or for much, has got it."""
        waiting = self._head(small)
        if not waiting or not self._fits(waiting[0][2]):
            return False
        _, _, size, holder = heappop(waiting)
        del self._waits[holder]
        self._give(holder, size)
        self._call_soon(holder.resume)
        return True

    # ── who is slow ───────────────────────────────────────────────────────────────────────────────────────

    def _begin_window(self) -> None:
        self._is_looking = True
        for holder, share in self._shares.items():
            share.arrived_bytes = holder.arrived_bytes
        self._window_ends = self._now() + SLOW_SECONDS
        self._call_later(SLOW_SECONDS, self._look)

    def _look(self) -> None:
        """The window is over: whose request has hardly moved in it makes room, as long as somebody waits."""
        self._is_looking = False
        # When we were busy ourselves, nobody could be read.
        if self._now() - self._window_ends < SLOW_SECONDS / 2:
            slow = [(share.size, holder) for holder, share in self._shares.items() if _is_slow(holder, share)]
            for _, holder in sorted(slow, key=lambda each: each[0], reverse=True):
                if not self._waits:
                    break
                holder.lose_memory()
        if self._waits:
            self._begin_window()

    def check_invariants(self) -> None:
        """Raises InvariantViolation."""
        spare = sum([capacity * len(buffers) for capacity, buffers in self._spare.items()])
        if spare != self._spare_bytes or not 0 <= spare <= SPARE_BUFFER_BYTES_MAX:
            raise InvariantViolation(f"{spare} bytes lie spare, counted {self._spare_bytes}")
        sizes = [share.size for share in self._shares.values()]
        small = sum([size for size in sizes if size <= SMALL_REQUEST_BYTES])
        if (sum(sizes), small) != (self.given_out_bytes, self._small_bytes):
            raise InvariantViolation(f"{sum(sizes)} bytes are given out, counted {self.given_out_bytes}")
        if self.given_out_bytes > self.bytes_max and len(sizes) > 1:
            raise InvariantViolation(f"{self.given_out_bytes} bytes are given out, above {self.bytes_max}")
        if self._waits:
            self._check_waits()
        if self._is_pressed != (self.offered is not self.shared) or (self._waits and not self._is_looking):
            raise InvariantViolation(f"{len(self._waits)} wait for memory, and nobody looks")

    def _check_waits(self) -> None:
        if self._waits.keys() & self._shares.keys():
            raise InvariantViolation("somebody waits for memory that it has")
        for waiting in (self._head(True), self._head(False)):
            if waiting and self._fits(waiting[0][2]):
                raise InvariantViolation(f"{waiting[0][2]} bytes are waited for, and there")


_PAGE: Final = 4096


def _capacity(size: int) -> int:
    """Small buffers are used again, and so have few sizes."""
    if size <= SMALL_REQUEST_BYTES:
        return 1 << (size - 1).bit_length()
    return -(-size // _PAGE) * _PAGE


def _is_slow(holder: Holder, share: _Share) -> bool:
    return share.arrived_bytes >= 0 and holder.arrived_bytes - share.arrived_bytes < share.size // SLOW_PART
