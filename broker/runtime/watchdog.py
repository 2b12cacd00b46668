"""Helps the clients of a broker that stands still: a second process ends their connections, and they look elsewhere.

A broker that is stopped (SIGSTOP, a debugger, a frozen container) holds its sockets and answers nothing. The others
have new leaders within a second or two, but a client that waits for an answer here finds out only when its own time-out
of half a minute or more is over; nothing in the protocol can tell it. Nobody else can end a TCP connection but the
machine it is on. So a child of the broker hears it beat, and when the beat stops and the kernel says that the broker
is stopped, shuts its connections down from outside. The broker leads nothing by then, or will not for long: an ended
connection is something every client knows how to live with. Its listeners are shut down as well, or clients would come
right back to where the kernel takes connections that nobody serves; the broker listens again when it goes on.

It needs Linux (pidfd_getfd, from 5.6 on). Elsewhere, and where that is forbidden, it does
nothing. A broker that is only slow is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

PIDFD_GETFD = 438
"""The number of the system call, the same on every architecture."""

STOPPED_STATES = ("T", "t")
"""As /proc tells: stopped by a signal, or by a debugger."""

BEATS_PER_TIMEOUT = 4

PR_SET_PTRACER = 0x59616D61
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class Watchdog:
    """The broker's end of it: beats as long as the event loop turns."""

    def __init__(self, pipe: int, pid: int, timeout_seconds: float) -> None:
        self.pid = pid
        self._pipe = pipe
        self._pause = timeout_seconds / BEATS_PER_TIMEOUT
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat from now on."""
        try:
            os.write(self._pipe, b".")
        except BlockingIOError:
            pass  # it has enough to read
        except OSError:
            return  # it is gone: the broker goes on without it
        self._timer = loop.call_later(self._pause, self.begin, loop)

    def guard(self, ports: Iterable[int]) -> None:
        """These are listened on, by a listener that knows how to begin again (`broker/server/server.py`)."""
        with contextlib.suppress(OSError):
            os.write(self._pipe, "".join(f"[{port}]" for port in ports).encode())

    def end(self) -> None:
        """Let it go; it ends by itself."""
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._pipe)


def start_watchdog(timeout_seconds: float) -> Watchdog | None:
    """Fork the watching process. Call it before threads and an event loop exist. None where there is no such help."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    broker = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _watch(theirs, broker, timeout_seconds)
        finally:
            # Never back into the broker's code.
            os._exit(0)
    os.close(theirs)
    _allow(pid)
    return Watchdog(ours, pid, timeout_seconds)


def _allow(pid: int) -> None:
    """Where only ancestors may look into a process (Yama), say that this child may."""
    try:
        restricted = os.geteuid() != 0 and YAMA.read_text().strip() == "1"
    except OSError:
        return
    if restricted:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PTRACER, pid, 0, 0, 0)


def _watch(pipe: int, broker: int, timeout_seconds: float) -> None:
    """Until the broker ends, which closes the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whatever else is open here would outlive the broker that it belongs to.
    os.closerange(0, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") < 1 << 16 else 1 << 16)
    is_cut_off = False
    ports: set[int] = set()
    while True:
        if select.select([pipe], [], [], None if is_cut_off else timeout_seconds)[0]:
            said = os.read(pipe, 4096)
            if not said:
                return
            ports.update(int(port) for port in re.findall(rb"\[(\d+)\]", said))
            is_cut_off = False
        elif _state(broker) in STOPPED_STATES:
            _cut_off(broker, ports)
            is_cut_off = True


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def _cut_off(pid: int, ports: Collection[int]) -> None:
    """Shut down every TCP connection of the process, and its listeners on these ports."""
    import ctypes
    import socket

    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                continue
        except OSError:
            continue
        descriptor = libc.syscall(PIDFD_GETFD, process, int(name), 0)
        if descriptor < 0:
            continue
        # A connection may have ended by itself.
        with socket.socket(fileno=descriptor) as copy, contextlib.suppress(OSError):
            if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                continue
            listens = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if not listens or copy.getsockname()[1] in ports:
                copy.shutdown(socket.SHUT_RDWR)
    os.close(process)
