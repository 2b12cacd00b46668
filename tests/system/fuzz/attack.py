"""Sends frames to a broker over several connections at once, and counts what became of each.

A frame is done when its reply has come, when the broker closed the connection over it, or when nothing more happens (it
asked for a long wait, or its length promised more than there is). Frames behind the one that ended a connection are
sent again on the next.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

BATCH_FRAMES = 32
QUIET_SECONDS = 0.4
"""When a connection has been silent for so long, its first unanswered frame is taken for one that waits."""
GIVE_UP_SECONDS = 120.0
"""Without any progress on any connection the broker is taken for dead."""
CONNECT_SECONDS = 30.0


class Outcome(NamedTuple):
    """What became of the frames. `closed`: connections that the broker ended."""

    done: int
    replies: int
    closed: int
    quiet: int


class NoProgress(Exception):
    """The broker answers nobody any more."""


class _Lane:
    """One connection at a time, with the frames that are under way on it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.frames: list[bytes] = []
        self.socket: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self.last_progress = 0.0

    def fill(self, waiting: deque[bytes], source: Iterator[bytes]) -> bool:
        """Take the next frames and begin to send them; False when there are none."""
        while len(self.frames) < BATCH_FRAMES:
            frame = waiting.popleft() if waiting else next(source, None)
            if frame is None:
                break
            self.frames.append(frame)
        if not self.frames:
            return False
        if self.socket is None:
            self.socket = socket.create_connection(self._address, timeout=CONNECT_SECONDS)
            self.socket.setblocking(False)
        self._unsent = memoryview(b"".join(self.frames))
        self._received.clear()
        self.last_progress = time.monotonic()
        return True

    def send(self) -> None:
        """As much as the kernel takes."""
        assert self.socket is not None
        while self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return
            except (BrokenPipeError, ConnectionResetError):
                self._unsent = memoryview(b"")  # reading tells the rest

    def receive(self) -> int | None:
        """Replies that have come, or None when the broker has closed the connection."""
        assert self.socket is not None
        try:
            chunk = self.socket.recv(1 << 18)
        except BlockingIOError:
            return 0
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            return None
        self.last_progress = time.monotonic()
        self._received += chunk
        replies = 0
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                break
            del self._received[: 4 + size]
            replies += 1
        return replies

    def drop(self) -> None:
        """Close our end."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    @property
    def wants_to_send(self) -> bool:
        return len(self._unsent) > 0


class Attack:
    """Sends `frames` over `lanes` connections at once."""

    def __init__(self, address: tuple[str, int], frames: Iterator[bytes], lanes: int = 16) -> None:
        self._source = frames
        self._again: deque[bytes] = deque()
        self._lanes = [_Lane(address) for _ in range(lanes)]
        self._selector = selectors.DefaultSelector()
        self._counts = {"done": 0, "replies": 0, "closed": 0, "quiet": 0}

    @property
    def outcome(self) -> Outcome:
        return Outcome(**self._counts)

    def under_way(self) -> list[bytes]:
        """The frames that were not done: when the broker dies, one of them did it."""
        return [frame for lane in self._lanes for frame in lane.frames]

    def run(self) -> Outcome:
        """Until all frames are done. Raises NoProgress, and ConnectionError when nobody listens any more."""
        last = time.monotonic()
        active = [lane for lane in self._lanes if self._refill(lane)]
        while active:
            before = self._counts["done"]
            for key, events in self._selector.select(QUIET_SECONDS / 4):
                self._turn(key.data, events)
            self._look_for_quiet_ones(active)
            active = [lane for lane in active if lane.frames or self._refill(lane)]
            now = time.monotonic()
            if self._counts["done"] > before:
                last = now
            elif now - last > GIVE_UP_SECONDS:
                raise NoProgress(f"nothing happened for {GIVE_UP_SECONDS:g} s")
        self.stop()
        return self.outcome

    def stop(self) -> None:
        """Let go of all connections."""
        for lane in self._lanes:
            self._forget(lane)
        self._selector.close()

    def _refill(self, lane: _Lane) -> bool:
        connected = lane.socket is not None
        if not lane.fill(self._again, self._source):
            self._forget(lane)
            return False
        assert lane.socket is not None
        wanted = selectors.EVENT_READ | selectors.EVENT_WRITE
        if connected:
            self._selector.modify(lane.socket, wanted, lane)
        else:
            self._selector.register(lane.socket, wanted, lane)
        return True

    def _turn(self, lane: _Lane, events: int) -> None:
        if lane.socket is None:
            return
        if events & selectors.EVENT_WRITE:
            lane.send()
            if not lane.wants_to_send:
                self._selector.modify(lane.socket, selectors.EVENT_READ, lane)
        if not events & selectors.EVENT_READ:
            return
        replies = lane.receive()
        if replies is None:
            self._end(lane, "closed")
            return
        self._counts["replies"] += replies
        self._counts["done"] += min(replies, len(lane.frames))
        del lane.frames[:replies]

    def _look_for_quiet_ones(self, active: list[_Lane]) -> None:
        now = time.monotonic()
        for lane in active:
            if lane.frames and now - lane.last_progress > QUIET_SECONDS:
                self._end(lane, "quiet")

    def _end(self, lane: _Lane, why: str) -> None:
        """The first frame of the lane is done; those behind it go to somebody else."""
        self._forget(lane)
        self._counts[why] += 1
        if lane.frames:
            self._counts["done"] += 1
            self._again.extend(lane.frames[1:])
            lane.frames = []

    def _forget(self, lane: _Lane) -> None:
        if lane.socket is not None:
            self._selector.unregister(lane.socket)
            lane.drop()
