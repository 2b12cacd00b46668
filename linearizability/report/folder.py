"""A run's folder, read: run.json, history.jsonl, faults.jsonl, samples.jsonl and logs/ (docs/VERIFICATION.md).

Only run.json and history.jsonl must be there. A file that was cut off in the middle of a line, as a killed process
leaves it, is read as far as it goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from raftlog.linearizability.checker.formats.jsonl import read_history
from raftlog.linearizability.checker.formats.lines import Source
from raftlog.linearizability.checker.history import History
from raftlog.linearizability.report.run import Fault, LogLine, PartitionSample, Run, RunError, Sample

LOG_BYTES_MAX = 16_000_000
"""Of each broker's log; of a longer one the end is read."""
CLIENT_BYTES_MAX = 2_000
"""Of what each client wrote."""
NANOSECONDS = 1_000_000_000
_TIME_LIMIT = 1 << 63
_STAMP = re.compile(r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)[.,](\d{1,9})(Z|[+-]\d\d:?\d\d)?\]?\s*")
_LEVEL = re.compile(r"(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b\s*")


def read_run(folder: str | Path, read: Callable[[Source], History] = read_history) -> Run:
    """The run in a folder; `read` is what reads its history. Raises RunError, HistoryError (file and line), OSError."""
    folder = Path(folder)
    about = _about(folder / "run.json")
    history = _history(folder / "history.jsonl", read)
    faults = _faults(folder / "faults.jsonl")
    samples = [_sample(line, where) for line, where in _lines(folder / "samples.jsonl")]
    logs = _logs(folder / "logs", about)
    samples.sort(key=lambda sample: sample.time)
    return Run(folder.absolute().name, about, history, faults, samples, logs, _clients(folder / "logs"))


def _history(file: Path, read: Callable[[Source], History]) -> History:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - 1))
        if opened.read() in (b"", b"\n"):
            return read(str(file))
        opened.seek(0)
        return read(line for line in opened if line.endswith(b"\n"))


def _about(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise RunError(f"{file.parent} is no run of raftlog verify: there is no run.json in it")
    try:
        about = _parse(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{file}: {error}") from None
    if not isinstance(about, dict):
        raise RunError(f"{file}: not a JSON object")
    _look_at(about, _ABOUT, str(file))
    return about


def _parse(text: str) -> Any:
    """The JSON value. Raises ValueError, also for a number that is none or beyond all measure, and RecursionError."""
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number


_ANOMALY = {"name": str, "definition": str, "severity": str, "judgement": str, "count": int}
_EXAMPLE: dict[str, Any] = {"operations": [{}], "details": {}}
_CHECK = {"model": str, "file": str, "options": [str], "anomalies": [{**_ANOMALY, "examples": [_EXAMPLE]}]}
_ABOUT: dict[str, Any] = {
    "phases": [{"begin": int, "end": int}],
    "check": [str],
    "libraries": [str],
    "verdict": {"doubts": [str], "checks": [_CHECK]},
}
"""What is looked into, by its names; whatever is missing or null may be so. The rest is only shown."""
_KINDS = {int: "an integer", str: "a text", dict: "an object", list: "a list"}


def _look_at(value: Any, form: Any, where: str) -> None:
    """Raises RunError for what is not of this form: a type, an object of forms, or a list of one form."""
    kind = form if isinstance(form, type) else type(form)
    found = type(value)
    if value is None:
        return
    if found is not kind:
        raise RunError(f"{where} is not {_KINDS[kind]}")
    if isinstance(form, dict):
        for name, inner in form.items():
            _look_at(value.get(name), inner, f"{where}: {name}")
    elif isinstance(form, list):
        if None in value:
            raise RunError(f"{where} has a null in it")
        for place, each in enumerate(value):
            _look_at(each, form[0], f"{where}[{place}]")


def _lines(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects of a JSON Lines file, and where each stands; none where there is no file."""
    if not file.exists():
        return
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")  # a text may hold other ends of lines
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = _parse(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                return  # cut off
            raise RunError(f"{file}:{number}: {error}") from None
        if not isinstance(value, dict):
            raise RunError(f"{file}:{number}: not a JSON object")
        yield value, f"{file}:{number}"


def _number(value: Mapping[str, Any], name: str, where: str) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise RunError(f"{where}: {name} is no integer")
    if not -_TIME_LIMIT <= found < _TIME_LIMIT:
        raise RunError(f"{where}: {name} is no integer of 64 bits")
    return found


def _optional(value: Mapping[str, Any], name: str) -> int | None:
    found = value.get(name)
    return found if type(found) is int and 0 <= found < _TIME_LIMIT else None


def _faults(file: Path) -> list[Fault]:
    """Each fault once; a beginning without an end was in force when the run ended."""
    begun: dict[Any, dict[str, Any]] = {}
    faults: list[Fault] = []
    for line, where in _lines(file):
        time = _number(line, "time", where)
        event, number = line.get("type"), _number(line, "number", where)
        if event == "begin":
            begun[number] = {**line, "time": time}
        elif event == "end":
            begin = begun.pop(number, None)
            if begin is None:
                raise RunError(f"{where}: fault {number} ends without a beginning")
            faults.append(_fault(begin, {**begin, **line}, time))
        else:
            raise RunError(f"{where}: type is neither begin nor end")
    faults += [_fault(begin, begin, None) for begin in begun.values()]
    return sorted(faults, key=lambda fault: fault.start)


def _fault(begin: Mapping[str, Any], told: Mapping[str, Any], end: int | None) -> Fault:
    evidence = told.get("evidence")
    effect = told.get("effect")
    return Fault(
        str(begin.get("kind", "fault")),
        str(begin.get("target") or ""),
        begin["time"],
        end,
        dict(evidence) if isinstance(evidence, Mapping) else {},
        effect if isinstance(effect, bool) else None,
        str(told.get("error") or ""),
    )


def _sample(line: Mapping[str, Any], where: str) -> Sample:
    partitions, quorum, groups, brokers = (
        line.get(name) or {} for name in ("partitions", "quorum", "groups", "brokers")
    )
    if not all(isinstance(one, Mapping) for one in (partitions, quorum, groups, brokers)):
        raise RunError(f"{where}: partitions, quorum, groups and brokers are objects")
    return Sample(
        _number(line, "time", where),
        {str(name): _partition(told, where) for name, told in partitions.items() if isinstance(told, Mapping)},
        _optional(quorum, "term"),
        _optional(quorum, "leader"),
        {str(broker): str(state) for broker, state in brokers.items()},
        {str(group): dict(offsets) for group, offsets in groups.items() if isinstance(offsets, Mapping)},
    )


def _partition(told: Mapping[str, Any], where: str) -> PartitionSample:
    isr = told.get("isr")
    _look_at(isr, [int], f"{where}: isr")
    return PartitionSample(
        _optional(told, "leader"),
        _optional(told, "epoch"),
        tuple(sorted(isr)) if isinstance(isr, list) else None,
        _optional(told, "high_watermark"),
        _optional(told, "last_stable"),
        _optional(told, "log_end"),
    )


# Brokers' logs


def _logs(folder: Path, about: Mapping[str, Any]) -> list[LogLine]:
    """The lines of all brokers in the order of time. Those without a stamp belong to the one before."""
    origin, began = about.get("origin"), about.get("began")
    if not isinstance(origin, int) or not isinstance(began, int | float):
        return []
    offset = origin - round(began * NANOSECONDS)  # from wall time to the history's clock
    if not -_TIME_LIMIT <= offset < _TIME_LIMIT:
        return []
    found: list[LogLine] = []
    for file in sorted(folder.glob("broker-*.log")):
        broker = file.stem.removeprefix("broker-")
        found += _of_broker(file, broker, offset)
    return sorted(found, key=lambda line: line.time)


def _clients(folder: Path) -> dict[str, str]:
    """The end of what each client process complained of, if anything."""
    told = {file.stem: file.read_bytes()[-CLIENT_BYTES_MAX:] for file in sorted(folder.glob("client-*.log"))}
    return {name: text.decode("utf-8", errors="replace").strip() for name, text in told.items() if text.strip()}


def _of_broker(file: Path, broker: str, offset: int) -> Iterator[LogLine]:
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - LOG_BYTES_MAX))
        text = opened.read().decode("utf-8", errors="replace")
    held: LogLine | None = None
    for line in text.splitlines():
        parsed = _parsed(line, broker, offset)
        if parsed is not None:
            if held is not None:
                yield held
            held = parsed
        elif held is not None:
            held = LogLine(held.time, broker, held.level, f"{held.text}\n{line}"[:4000])
    if held is not None:
        yield held


def _parsed(line: str, broker: str, offset: int) -> LogLine | None:
    """A line of raftlog's text or JSON form, or of Kafka's; None for one that begins with no time."""
    if line.startswith("{"):
        try:
            event = json.loads(line)
            text = f"{event['logger']} {event['message']}"
            return LogLine(_moment(event["time"]) + offset, broker, str(event["level"]), text)
        except (ValueError, KeyError, TypeError):
            return None
    stamp = _STAMP.match(line)
    if stamp is None:
        return None
    rest = line[stamp.end() :]
    level = _LEVEL.match(rest)
    text = rest[level.end() :] if level else rest
    try:
        return LogLine(_moment(stamp.group()) + offset, broker, level[1] if level else "", text)
    except ValueError:
        return None


def _moment(text: str) -> int:
    """Nanoseconds since 1970. A stamp without a zone is taken to be in UTC. Raises ValueError for no moment."""
    stamp = _STAMP.match(text)
    if stamp is None:
        raise ValueError(text)
    day, clock, fraction, zone = stamp.groups()
    seconds = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in (None, 'Z') else zone}")
    return int(seconds.timestamp()) * NANOSECONDS + int(fraction.ljust(9, "0"))
