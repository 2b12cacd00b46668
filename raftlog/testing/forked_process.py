"""A process that a fork server started for us: what subprocess.Popen is for one of our own."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence

from raftlog.testing.fork_server import Order, send

SERVERS_MAX = 4  # one for each interpreter and set of its own variables that was asked for lately
FORK_TIMEOUT_SECONDS = 30.0
HEAR_SECONDS = 0.1  # after which it looks whether another thread has heard what it waits for
# What an interpreter, or the libraries loaded into it, read when they start: too late for who is forked.
_READ_AT_START = ("PYTHON", "LD_", "DYLD_", "FAKETIME")


class ForkedProcess:
    """Threads may use it side by side. Invariant: `_status` is open until it was told how the process ended."""

    def __init__(self, python: Sequence[str], order: Order, **descriptors: int) -> None:
        """`python` runs the fork server; `descriptors` are those of `fork_server.send` but `status`."""
        self.args = [*python, "-m", order.module, *order.arguments]
        self.returncode: int | None = None
        self._pid: int | None = None
        self._told = b""
        self._lock = threading.Lock()
        self._status, told = os.pipe()
        try:
            _ask(python, order, {**descriptors, "status": told})
        except BaseException:
            os.close(self._status)
            raise
        finally:
            os.close(told)

    @property
    def pid(self) -> int:
        """Waits until it is known. Raises OSError when there will be none."""
        deadline = time.monotonic() + FORK_TIMEOUT_SECONDS
        while self._pid is None:
            left = deadline - time.monotonic()
            if self.returncode is not None or left <= 0:
                raise ChildProcessError(f"no process was started for {' '.join(self.args)}")
            self._hear(min(left, HEAR_SECONDS))
        return self._pid

    def fileno(self) -> int:
        """Becomes readable when it ends."""
        _ = self.pid  # else it becomes so when it starts
        return self._status

    def poll(self) -> int | None:
        """How it ended (negative: by that signal), or None while it runs."""
        while self.returncode is None and self._hear(0):
            pass
        return self.returncode

    def wait(self, timeout: float) -> int:
        """`poll()` once it has ended. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            if not self._hear(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _hear(self, timeout: float) -> bool:
        """Whether the server said something within `timeout` seconds, to this thread or another one."""
        try:
            if not select.select([self._status], [], [], max(0.0, timeout))[0]:
                return False
        except (OSError, ValueError):
            return True  # another thread has heard the last of it
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                self._read()
        return True

    def _read(self) -> None:
        chunk = os.read(self._status, 4096)
        self._told += chunk
        *lines, self._told = self._told.split(b"\n")
        for line in lines:
            word, number = line.split()
            if word == b"pid":
                self._pid = int(number)
            else:
                self._ended(int(number))
        if not chunk and self.returncode is None:
            self._orphaned()

    def _orphaned(self) -> None:
        """The server was killed: nobody is left to tell how it ends, so it ends now."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._ended(-signal.SIGKILL)

    def _ended(self, code: int) -> None:
        self.returncode = code
        os.close(self._status)
        self._status = -1


class _ForkServer:
    def __init__(self, python: Sequence[str], errors: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._socket = ours
            self._process = subprocess.Popen(
                [*python, "-m", "raftlog.testing.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal is for its parent alone
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ask(self, order: Order, descriptors: dict[str, int]) -> None:
        send(self._socket, order, descriptors)

    def retire(self) -> None:
        """It ends when the last process that it has forked is gone."""
        self._socket.close()
        _retired.append(self)

    def leave(self) -> None:
        """It ends as above, and nobody waits for it."""
        self._socket.close()
        self._process.returncode = self._process.poll() or 0


_servers: dict[tuple[object, ...], _ForkServer] = {}
_retired: list[_ForkServer] = []
_lock = threading.Lock()


def _ask(python: Sequence[str], order: Order, descriptors: dict[str, int]) -> None:
    read_at_start = tuple((k, v) for k, v in sorted(order.environment.items()) if k.startswith(_READ_AT_START))
    # The modules of a server come from where it was started.
    key = (tuple(python), read_at_start, order.directory if "-P" not in python else "")
    with _lock:
        _retired[:] = [each for each in _retired if each.runs]
        server = _servers.pop(key, None)
        if server is None or not server.runs:
            while len(_servers) >= SERVERS_MAX:
                _servers.pop(next(iter(_servers))).retire()
            server = _ForkServer(python, descriptors["stderr"])
        try:
            server.ask(order, descriptors)
        except ConnectionError:  # it has ended, and with it the pipe that would have told of the new process
            server.retire()
        except BaseException:  # Ctrl-C, say: part of an order was sent, what followed would be taken for the rest
            server.retire()
            raise
        else:
            _servers[key] = server


@atexit.register
def _leave_all() -> None:
    for server in [*_servers.values(), *_retired]:
        server.leave()


def _forget_all() -> None:
    """A server belongs to the process that started it, and not to those that this one forks."""
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    _leave_all()
    _servers.clear()
    _retired.clear()


os.register_at_fork(after_in_child=_forget_all)
