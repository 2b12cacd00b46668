"""Starts brokers without importing their code again: a process that has imported it once forks them.

As `multiprocessing.forkserver`, for programs instead of functions. Over a socket come orders, each with the
descriptors of the new process; over a pipe of each process go back its number, and in the end how it ended:
`pid 4711\\n`, `exit -9\\n`. The server ends when the socket is closed and all that it forked are gone.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from dataclasses import astuple, dataclass, replace
from importlib import import_module

LENGTH_BYTES = 4
_DESCRIPTORS = ("status", "stdout", "stderr", "ready", "lifeline")


@dataclass(frozen=True, slots=True)
class Order:
    """One process to start: what `python -m module *arguments` would be, with the caller's surroundings. It is told
    its descriptors `ready` and `lifeline` by `--ready-fd` and `--lifeline-fd`.

    `imports`: modules that it needs, and that others can have from the server then.
    """

    module: str
    arguments: list[str]
    imports: list[str]
    directory: str
    environment: dict[str, str]


def send(server: socket.socket, order: Order, descriptors: dict[str, int]) -> None:
    """`descriptors`: one of each name of `status stdout stderr ready lifeline`. Raises OSError when it has ended."""
    told = json.dumps(astuple(order)).encode("ascii")
    head = len(told).to_bytes(LENGTH_BYTES, "big")
    socket.send_fds(server, [head], [descriptors[name] for name in _DESCRIPTORS])
    server.sendall(told)


def _receive(server: socket.socket) -> tuple[Order, dict[str, int]] | None:
    """None: nobody will ask for more."""
    head, received, _, _ = socket.recv_fds(server, 1, len(_DESCRIPTORS))
    if not head:
        return None
    try:
        length = int.from_bytes(head + _exactly(server, LENGTH_BYTES - 1), "big")
        order = Order(*json.loads(_exactly(server, length)))
    except EOFError:
        for descriptor in received:
            os.close(descriptor)
        return None
    return order, dict(zip(_DESCRIPTORS, received, strict=True))


def _exactly(server: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = server.recv(size - len(received))
        if not chunk:
            raise EOFError("whoever asks is gone, or was interrupted")
        received += chunk
    return bytes(received)


class _Server:
    """Invariant: `_statuses` has the pipe of each process that was forked and not collected yet."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders: socket.socket | None = orders
        self._statuses: dict[int, int] = {}
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> Order | None:
        """Returns None when all is over, and in each forked process its order, with its descriptors."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        while self._orders is not None or self._statuses:
            asked = [] if self._orders is None else [self._orders.fileno()]
            heard = set(select.select([self._woken, *asked], [], [])[0])
            if self._woken in heard:
                os.read(self._woken, 4096)
            self._collect()
            if self._orders is None or heard.isdisjoint(asked):
                continue
            received = _receive(self._orders)
            if received is None:
                self._orders.close()
                self._orders = None
            elif (order := self._fork(*received)) is not None:
                return order
        return None

    def _collect(self) -> None:
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._tell(self._statuses.pop(pid), f"exit {os.waitstatus_to_exitcode(status)}\n", last=True)

    @staticmethod
    def _tell(pipe: int, line: str, last: bool = False) -> None:
        try:
            os.write(pipe, line.encode())
        except BrokenPipeError:
            pass  # nobody wants to know
        if last:
            os.close(pipe)

    def _fork(self, order: Order, descriptors: dict[str, int]) -> Order | None:
        """In the new process the order with its descriptors, None in this one."""
        _import(order.imports)
        pid = os.fork()
        if not pid:
            self._leave(descriptors)
            ties = ["--ready-fd", str(descriptors["ready"]), "--lifeline-fd", str(descriptors["lifeline"])]
            return replace(order, arguments=[*order.arguments, *ties])
        status = descriptors.pop("status")
        for descriptor in descriptors.values():
            os.close(descriptor)
        self._statuses[pid] = status
        self._tell(status, f"pid {pid}\n")
        return None

    def _leave(self, descriptors: dict[str, int]) -> None:
        """Nothing of the server stays in the new process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        assert self._orders is not None
        self._orders.close()
        for name, target in (("stdout", 1), ("stderr", 2)):
            os.dup2(descriptors[name], target)
        mine = (self._woken, self._waker, descriptors["status"], descriptors["stdout"], descriptors["stderr"])
        for descriptor in (*mine, *self._statuses.values()):
            os.close(descriptor)


def _import(modules: list[str]) -> None:
    if all(name in sys.modules for name in modules):
        return
    for name in modules:
        try:
            import_module(name)
        except Exception:  # noqa: BLE001 - the new process will say so where its log is
            return
    gc.freeze()  # what was imported stays in memory that all share


def _become(order: Order) -> None:
    from runpy import run_module

    gc.enable()
    try:
        os.chdir(order.directory)
    except OSError:
        os.chdir("/")  # where the caller is there is nothing to be found
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv = ["", *order.arguments]
    run_module(order.module, run_name="__main__", alter_sys=True)


def main(descriptor: int) -> None:
    """`descriptor`: of the socket that the orders come from."""
    gc.disable()
    order = _Server(socket.socket(fileno=descriptor)).serve()
    if order is not None:
        _become(order)


if __name__ == "__main__":
    main(int(sys.argv[1]))
