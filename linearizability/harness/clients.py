"""The client processes of a run, from the runner's side: what they say becomes the history."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness.mutated import python
from raftlog.linearizability.harness.session import Assignment
from raftlog.testing.process import safe_path

ENOUGH_SECONDS = 5.0
"""For a process to end that was told to."""
WAIT_SECONDS = 0.5
"""Between two looks whether a process still lives that is waited for."""
MODULE = "raftlog.linearizability.harness.worker"


class ClientProcess:
    """One process and the thread that reads what it says."""

    def __init__(
        self, work: Assignment, log: Path, hear: Callable[[ClientProcess, dict[str, Any]], None], mutant: str = ""
    ) -> None:
        self.work = work
        self.is_final_done = threading.Event()
        self.has_succeeded = False
        self.is_told_to_end = False
        self.complaint = ""
        self.notes: Counter[str] = Counter()
        self.open: dict[int, dict[str, Any]] = {}
        self.told_until = 0
        """The time of the last that it told, in nanoseconds."""
        self._hear = hear
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [*python(mutant), *safe_path(), "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self.tell(work.to_json())
        self._reader = threading.Thread(target=self._read, name=f"client-{work.number}", daemon=True)
        self._reader.start()

    def tell(self, order: dict[str, Any]) -> None:
        """Say something to it; nobody hears it who is dead."""
        self.is_told_to_end |= order.get("do") == "stop" and self.is_alive
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = ""
        try:
            for line in self._process.stdout:
                if line.endswith("\n"):  # else it was killed while it said it
                    self._hear(self, json.loads(line))
        except (ValueError, LookupError, TypeError) as error:
            self.complaint = f"client {self.work.number} said what is not understood: {line[:100]!r}, {error!r}"
            self._process.kill()  # what it does from here on nobody would write down

    @property
    def has_told_all(self) -> bool:
        """It has ended, and nothing of what it said is still to be read."""
        return not self._reader.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or is paused."""
        return self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.is_alive:
            os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until everything is read that it said."""
        self._process.kill()
        self._process.wait(ENOUGH_SECONDS)
        self._reader.join(ENOUGH_SECONDS)


class Clients:
    """All of them. `write` takes a line of the history; `counts` are operations by function and outcome."""

    def __init__(self, logs: Path, write: Callable[[dict[str, Any]], None], mutant: str = "") -> None:
        self._mutant = mutant
        self._logs = logs
        self._write = write
        self._lock = threading.Lock()
        self.all: list[ClientProcess] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.versions: dict[str, str] = {}
        self.final_read: list[dict[str, int]] = []
        self.final_ends: dict[str, int] = {}
        self.final_failures: list[str] = []
        self.unfinished: list[int] = []
        self.values: dict[str, int] = {}
        self.last_ok = time.monotonic()
        self.goals: dict[str, int] = {}
        self._is_final = False

    def start(self, work: Assignment) -> ClientProcess:
        """Start a client process."""
        client = ClientProcess(work, self._logs / f"client-{work.number}.log", self._hear, self._mutant)
        self.all.append(client)
        return client

    # -- what they say -----------------------------------------------------------------------------

    def _hear(self, client: ClientProcess, line: dict[str, Any]) -> None:
        kind = line["e"]
        with self._lock:
            if kind == "note":
                self._noted(client, line["name"], line["value"])
            elif kind == "invoke":
                client.open[line["id"]] = line
            else:
                self._completed(client.open.pop(line["id"]), line)
                client.has_succeeded |= kind == "ok"
            client.told_until = max(client.told_until, line["time"])

    def told_until(self) -> int:
        """Up to when the history has all that has ended, in nanoseconds: on a busy machine, what one client says may
        come much later than what others have seen of it."""
        with self._lock:
            return min((each.told_until for each in self.all if not each.has_told_all), default=time.monotonic_ns())

    def _completed(self, call: dict[str, Any], end: dict[str, Any] | None) -> None:
        outcome = "info" if end is None else end["e"]
        self.counts[call["function"], outcome] += 1
        whole = {"type": "operation", "process": call["process"], "function": call["function"], "call": call["time"]}
        for name in ("key", "input"):
            if name in call:
                whole[name] = call[name]
        if end is not None:
            whole["return"] = end["time"]
            for name in ("output", "error"):
                if name in end:
                    whole[name] = end[name]
        if outcome != "ok":
            whole["outcome"] = outcome
        else:
            self.last_ok = time.monotonic()
            self._learn(whole.get("output"))
        self._write(whole)

    def _learn(self, output: Any) -> None:
        """The highest offset of each key that somebody was told, or had read before the final reads."""
        steps = output.get("ops", ()) if isinstance(output, dict) else output
        if not isinstance(steps, list):
            return
        for step in steps:
            if not isinstance(step, list) or len(step) < 2:
                continue
            if step[0] == "send" and isinstance(step[2], list) and step[2][0] is not None:
                self.goals[step[1]] = max(self.goals.get(step[1], -1), step[2][0])
            elif step[0] == "poll" and not self._is_final:
                for key, records in step[1].items():
                    self.goals[key] = max([self.goals.get(key, -1), *(offset for offset, _ in records)])

    def _noted(self, client: ClientProcess, name: str, value: Any) -> None:
        match name:
            case "version":
                self.versions |= value
            case "final-read":
                self.final_read.append(value)
            case "final-ends":
                for key, end in value.items():
                    self.final_ends[key] = max(end, self.final_ends.get(key, 0))
            case "final-failed":
                self.final_failures.append(f"client {client.work.number}: {value}")
            case "final-done":
                client.is_final_done.set()
            case "records-left" | "final-ends-missing":
                self.values[name] = value
            case _:
                client.notes[name] += value

    # -- phases ------------------------------------------------------------------------------------

    def read_back(self, seconds: float) -> None:
        """Have all of them read everything back, or wait so long; `unfinished` says who did not."""
        self._is_final = True
        for client in self.all:
            client.tell({"do": "final", "goals": self.goals})
        deadline = time.monotonic() + seconds
        for client in self.all:
            while client.is_alive and not client.is_final_done.wait(WAIT_SECONDS) and time.monotonic() < deadline:
                pass
        working = [each for each in self.all if each.is_alive and not each.is_told_to_end]
        self.unfinished = [each.work.number for each in working if not each.is_final_done.is_set()]

    def stop(self) -> None:
        """End them all. What they have open is of unknown outcome."""
        for client in self.all:
            client.tell({"do": "stop"})
        for client in self.all:
            client.resume()
            client.kill()
            with self._lock:
                for call in client.open.values():
                    self._completed(call, None)
                client.open.clear()

    @property
    def dead(self) -> list[str]:
        """Those that ended by themselves, in sentences. Also after `stop`."""
        ended = [each for each in self.all if not each.is_alive and not each.is_told_to_end]
        lost = [each for each in ended if not each.is_final_done.is_set()]
        return [each.complaint or f"client {each.work.number} died: see its log" for each in lost]

    @property
    def idle(self) -> list[str]:
        """Those of which nothing succeeded: number and library. A stand-in may come too late."""
        idle = [each.work for each in self.all if not each.has_succeeded and each.work.stand_in_for is None]
        return [f"{work.number} ({work.library})" for work in idle]

    def total(self, outcome: str) -> int:
        """How many operations ended so."""
        return sum(count for (_, each), count in self.counts.items() if each == outcome)
