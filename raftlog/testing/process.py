"""One broker as an operating-system process: start it, hear that it serves, stop it, kill it, start it again.

The ties are two pipes. On `--ready-fd` the broker writes one line of JSON once it accepts connections. From
`--lifeline-fd` it reads end-of-file when the parent is gone, even through kill -9, and stops.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

from raftlog.testing.fork_server import Order
from raftlog.testing.forked_process import ForkedProcess

START_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 30.0
LOG_TAIL_BYTES = 4096
# What a broker imports: always, in a quorum, and where faults may happen to it.
_IMPORTS = ("raftlog.cli.main", "raftlog.cli.broker", "raftlog.broker.main")
_OF_A_QUORUM = ("membership", "clock_check", "watchdog")
_QUORUM_IMPORTS = ("raftlog.raft.hardened", *(f"raftlog.broker.runtime.{name}" for name in _OF_A_QUORUM))
_FAULT_IMPORTS = ("raftlog.testing.faults.in_broker",)


class BrokerDied(Exception):
    """A broker ended, or did not start to serve, when it should have; the message ends with its last words."""


def safe_path() -> list[str]:
    """What keeps Python from importing a `queue.py` or a folder `raftlog` that happens to lie where the caller is.

    Nothing, when we ourselves come from there: out of a checkout that is not installed.
    """
    own = Path("raftlog", "testing", "process.py")
    return [] if own.exists() and own.samefile(__file__) else ["-P"]


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was removed


class BrokerProcess:
    """A broker with a fixed node id and data directory, running or not.

    It keeps its port over restarts: the first start may let the operating system choose (`port=0`), later ones
    listen where the first one did, so clients find it again.
    Invariant: the descriptors are open exactly while a process was started and its end was not yet collected.
    """

    def __init__(
        self,
        node_id: int,
        data_dir: Path | str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        log_file: Path | str | None = None,
        extra_arguments: Sequence[str] = (),
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        """`settings` are Kafka's broker configs; `log_file` gets what the broker logs (None: our standard error);
        `python` is the interpreter that runs it."""
        self.node_id = node_id
        self.data_dir = Path(data_dir)
        self.host = host
        self.port = port
        self.settings = dict(settings or {})
        self.log_file = Path(log_file) if log_file is not None else None
        self.extra_arguments = tuple(extra_arguments)
        self._python = tuple(python)
        self.started_at = 0.0
        """When the running, or last, process was started, in Unix seconds."""
        self._process: ForkedProcess | None = None
        self._ready: int | None = None
        self._lifeline: int | None = None
        self._waker: subprocess.Popen[bytes] | None = None
        self._waiting = threading.Lock()
        self._closing = threading.Lock()
        _tied.add(self)

    @property
    def address(self) -> str:
        """`host:port`; the port is 0 before the first start."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running, or last, process."""
        if self._process is None:
            raise BrokerDied(f"broker {self.node_id} was never started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How the last process ended (negative: by that signal), or None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_starting(self) -> bool:
        """Whether it runs, and has not said yet that it serves."""
        return self.running and self._ready is not None

    @property
    def death_fd(self) -> int | None:
        """Becomes readable when the running process ends; None when none was started."""
        return None if self._process is None or self._lifeline is None else self._process.fileno()

    @property
    def command(self) -> list[str]:
        """What to type to run the same broker by hand."""
        return [*self._python, *safe_path(), "-m", self.module, *self.arguments]

    @property
    def module(self) -> str:
        """What `python -m` runs."""
        return "raftlog"

    @property
    def arguments(self) -> list[str]:
        """What the module is told."""
        arguments = ["broker", "--node-id", str(self.node_id), "--data-dir", str(self.data_dir)]
        arguments += ["--listen", self.address]
        for key, value in self.settings.items():
            arguments += ["--set", f"{key}={value}"]
        return [*arguments, *self.extra_arguments]

    @property
    def imports(self) -> list[str]:
        """Modules that the process needs."""
        quorum = _QUORUM_IMPORTS if "--peers" in self.extra_arguments else ()
        return [*_IMPORTS, *quorum, *(_FAULT_IMPORTS if "--faults" in self.extra_arguments else ())]

    def start(self, *, wait: bool = True, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Start the process; with `wait`, return when it serves. Raises BrokerDied with the end of its log."""
        if self.running:
            raise BrokerDied(f"broker {self.node_id} runs already, as process {self.pid}")
        self.close()
        self.started_at = time.time()
        self._ready, ready_end = os.pipe()
        lifeline_end, self._lifeline = os.pipe()
        log = None if self.log_file is None else os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        order = Order(self.module, self.arguments, self.imports, _current_directory(), dict(os.environ))
        try:
            self._process = ForkedProcess(
                [*self._python, *safe_path()],
                order,
                stdout=sys.stderr.fileno() if log is None else log,
                stderr=2 if log is None else log,
                ready=ready_end,
                lifeline=lifeline_end,
            )
        finally:
            for descriptor in (ready_end, lifeline_end, *([] if log is None else [log])):
                os.close(descriptor)
        if wait:
            self.wait_until_ready(timeout)

    def wait_until_ready(self, timeout: float = START_TIMEOUT_SECONDS) -> None:
        """Return once the broker accepts connections; raise BrokerDied when it ends or `timeout` seconds pass."""
        import json  # not before: the broker starts meanwhile

        with self._waiting:
            with self._closing:
                if self._ready is None:
                    return
                ready = os.dup(self._ready)  # another thread may kill it, and close ours
            try:
                line = self._first_line(ready, timeout)
            finally:
                os.close(ready)
            self._close_ready()
            self.port = int(str(json.loads(line)["address"]).rpartition(":")[2])

    def _first_line(self, ready: int, timeout: float) -> bytes:
        deadline = time.monotonic() + timeout
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([ready], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrokerDied(f"broker {self.node_id} does not serve after {timeout:g} s{self.last_words()}")
            chunk = os.read(ready, 4096)
            if not chunk:
                self._collect(STOP_TIMEOUT_SECONDS)
                raise BrokerDied(f"broker {self.node_id} {self.how_it_ended()} before it served{self.last_words()}")
            line += chunk
        return line

    def _close_ready(self) -> None:
        with self._closing:
            ready, self._ready = self._ready, None
        if ready is not None:
            os.close(ready)

    def terminate(self) -> None:
        """SIGTERM, without waiting: the broker begins an orderly stop."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)  # a paused process hears nothing else
            self._process.terminate()

    def stop(self, timeout: float = STOP_TIMEOUT_SECONDS) -> int:
        """Ask it to stop in order (SIGTERM), wait, and return its exit code; kill it when that takes too long."""
        if self._process is None:
            return 0
        self.terminate()
        try:
            return self._collect(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerDied(f"broker {self.node_id} did not stop within {timeout:g} s{self.last_words()}") from None

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._collect(STOP_TIMEOUT_SECONDS)

    def pause(self) -> None:
        """SIGSTOP: the process lives, holds its sockets and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        if self._waker is None:
            # Who stands still does not see that the parent is gone. This one does, and wakes it: then it stops.
            wake = ["/bin/sh", "-c", 'read -r _; kill -CONT "$0"', str(self.pid)]
            self._waker = subprocess.Popen(wake, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self._dismiss_waker()

    def _dismiss_waker(self) -> None:
        if self._waker is not None:
            self._waker.kill()
            self._waker.communicate()
            self._waker = None

    def restart(self, *, kill: bool = False) -> None:
        """Stop it (or kill -9) and start it again on the same port and data directory."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def close(self) -> None:
        """Give the ties back. A process that still runs takes that as the order to stop."""
        self._close_ready()
        with self._closing:
            lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)
        self._dismiss_waker()

    def let_go(self) -> None:
        """In a process that was forked from ours: the ties are not its own, and would hold the broker."""
        self._waiting, self._closing = threading.Lock(), threading.Lock()  # another thread may have held them
        waker, self._waker = self._waker, None
        if waker is not None and waker.stdin is not None:
            waker.stdin.close()
            waker.returncode = 0  # it goes on, and is not ours to wait for
        self.close()

    def log(self) -> str:
        """What the broker has logged so far, over all its starts (empty when it logs to our standard error)."""
        if self.log_file is None or not self.log_file.exists():
            return ""
        return self.log_file.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of the log, in a form that can be hung onto a sentence."""
        tail = self.log()[-LOG_TAIL_BYTES:].rstrip()
        return f"; the end of its log:\n{tail}" if tail else ""

    def how_it_ended(self) -> str:
        code = self.returncode
        if code is None:
            return "still runs"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _collect(self, timeout: float) -> int:
        assert self._process is not None
        code = self._process.wait(timeout)
        self.close()
        return code


_tied: WeakSet[BrokerProcess] = WeakSet()


def _let_all_go() -> None:
    for broker in list(_tied):
        broker.let_go()


os.register_at_fork(after_in_child=_let_all_go)
