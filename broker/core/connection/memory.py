"""The memory that connections receive requests into: one shared buffer, and a bounded pool for large requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raftlog.broker.core.connection.limits import ARRIVING_BYTES_MAX, RECEIVE_BUFFER_BYTES, SPARE_BUFFER_BYTES_MAX
from raftlog.wire.errors import InvariantViolation


class ReceiveMemory:
    """What all connections of a server receive into.

    Invariants: at most `bytes_max` are given out, or more to one holder alone; at most SPARE_BUFFER_BYTES_MAX lie
    spare; who waits is called when something was given back.
    """

    __slots__ = (
        "_bytes_max",
        "_call_soon",
        "_over_bound",
        "_spare",
        "_spare_bytes",
        "_waiting",
        "given_out_bytes",
        "shared",
    )

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], bytes_max: int = ARRIVING_BYTES_MAX) -> None:
        """`call_soon` has to call what it is given, in a later turn."""
        self.shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.given_out_bytes = 0
        self._call_soon = call_soon
        self._bytes_max = bytes_max
        # The one holder that was given memory beyond the bound.
        self._over_bound: object = None
        self._spare: dict[int, list[bytearray]] = {}
        self._spare_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, holder: object, size: int) -> bytearray | None:
        """A buffer of at least `size` bytes for a request of `holder`, or None while the bound is reached."""
        capacity = 1 << (size - 1).bit_length()
        if self.given_out_bytes + capacity > self._bytes_max:
            # One request may always arrive, or half-arrived ones could wait for each other.
            if self._over_bound not in (None, holder):
                return None
            self._over_bound = holder
        self.given_out_bytes += capacity
        spare = self._spare.get(capacity)
        if spare:
            self._spare_bytes -= capacity
            return spare.pop()
        return bytearray(capacity)

    def give_back(self, buffer: bytearray, holder: object = None) -> None:
        """The buffer is free; who waits for memory goes on in a later turn.

        `holder` is given when its request was served or given up, and not moved to a larger buffer.
        """
        self.given_out_bytes -= len(buffer)
        if holder is not None and holder is self._over_bound:
            self._over_bound = None
        if self._spare_bytes + len(buffer) <= SPARE_BUFFER_BYTES_MAX:
            self._spare.setdefault(len(buffer), []).append(buffer)
            self._spare_bytes += len(buffer)
        while self._waiting:
            self._call_soon(self._waiting.popleft())

    def wait(self, resume: Callable[[], None]) -> None:
        """Have `resume` called when memory was given back."""
        self._waiting.append(resume)

    def check_invariants(self) -> None:
        """Raises InvariantViolation."""
        spare = sum(capacity * len(buffers) for capacity, buffers in self._spare.items())
        if spare != self._spare_bytes or not 0 <= spare <= SPARE_BUFFER_BYTES_MAX:
            raise InvariantViolation(f"{spare} bytes lie spare, counted {self._spare_bytes}")
        if self.given_out_bytes < 0:
            raise InvariantViolation(f"{self.given_out_bytes} bytes are given out")
        if self.given_out_bytes > self._bytes_max and self._over_bound is None:
            raise InvariantViolation(f"{self.given_out_bytes} bytes are given out, above {self._bytes_max}, to nobody")
