"""A run's folder, while it is written; docs/VERIFICATION.md says what is in it."""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from raftlog.linearizability.harness.settings import RunSettings

FORMAT = 1
RUN, HISTORY, FAULTS, SAMPLES, LOGS = "run.json", "history.jsonl", "faults.jsonl", "samples.jsonl", "logs"
FILES = (RUN, HISTORY, FAULTS, SAMPLES)


def copy_settled(history: Path, to: Path, latest: int) -> None:
    """The operations of a history that had ended by `latest`, in nanoseconds of its clock. Each client process tells of
    its own: of what ended later, the effect may be here and the cause not yet.
    """
    with history.open(encoding="utf-8") as lines, to.open("w", encoding="utf-8") as out:
        for line in lines:
            if line.endswith("\n") and json.loads(line).get("return", 0) <= latest:
                out.write(line)


class RunFolder:
    """Every method may be called from any thread. Lines are on the disk, whole, when a method returns."""

    def __init__(self, settings: RunSettings) -> None:
        """Raises FileExistsError for a folder that has anything in it."""
        self.path = settings.directory
        if (self.path / RUN).exists():
            raise FileExistsError(f"{self.path} holds a run already")
        if self.path.is_dir() and any(self.path.iterdir()):
            raise FileExistsError(f"{self.path} is not empty, and what it holds is no run")
        (self.path / LOGS).mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._streams = {name: (self.path / name).open("w", encoding="utf-8") for name in FILES[1:]}
        self.add(HISTORY, {"type": "history", "version": 1, "time_unit": "ns"})
        self.run: dict[str, Any] = {
            "format": FORMAT,
            "command": settings.command,
            "workload": settings.workload,
            "fault": settings.fault,
            "system": settings.system,
            "brokers": settings.brokers,
            "clients": settings.clients,
            "seconds": settings.seconds,
            "rate": settings.rate,
            "seed": settings.seed,
            "libraries": list(settings.libraries),
            "settings": settings.settings,
            "options": settings.options,
            "mutant": settings.mutant,
            "versions": {"raftlog": _version("raftlog"), "python": platform.python_version()},
            "began": time.time(),
            "origin": time.monotonic_ns(),
            "phases": [],
            "topics": [],
            "check": [],
            "status": "running",
            "verdict": None,
        }
        self.save()

    @property
    def history(self) -> Path:
        """The file of operations."""
        return self.path / HISTORY

    def add(self, name: str, line: dict[str, Any]) -> None:
        """Append a line to a file."""
        text = json.dumps(line, separators=(",", ":"), ensure_ascii=True) + "\n"
        with self._lock:
            stream = self._streams[name]
            if not stream.closed:
                stream.write(text)
                stream.flush()

    def phase(self, name: str) -> None:
        """A phase begins, and the one before ends."""
        now = time.monotonic_ns()
        phases = self.run["phases"]
        if phases:
            phases[-1]["end"] = now
        phases.append({"name": name, "begin": now, "end": None})
        self.save()

    def save(self) -> None:
        """Write run.json, whole."""
        with self._lock:
            temporary = self.path / f"{RUN}.new"
            temporary.write_text(json.dumps(self.run, indent=1, ensure_ascii=True) + "\n")
            temporary.rename(self.path / RUN)

    def end(self, status: str, verdict: dict[str, Any] | None) -> None:
        """The run is over."""
        if self.run["phases"] and self.run["phases"][-1]["end"] is None:
            self.run["phases"][-1]["end"] = time.monotonic_ns()
        self.run["status"] = status
        self.run["verdict"] = verdict
        self.save()

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for stream in self._streams.values():
                stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.run["status"] == "running":
            self.end("stopped", None)
        self.close()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return f"from {Path(sys.argv[0]).name}"
