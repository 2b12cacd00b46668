"""One fault as data: what goes wrong, to whom, when, and what it has done so far. Words are those of the simulator.

It is written as JSON to a file of its own (`directory.py`), where every process counts what the fault did there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from random import Random
from typing import Any

PROTOCOL = ("error", "disconnect", "delay", "observe", "blackhole")
LINKS = ("cut", "deaf", "isolate", "split", "slow-link", "drop", "bandwidth", "reset")
PROCESSES = ("kill", "power", "tear", "freeze", "stop")
ENDING = ("kill", "stop", "power", "tear")
BACK_LAST = (*ENDING, "sync-error")
"""After these a broker is started again."""
CUTS = ("cut", "deaf", "isolate", "split")
DISKS = ("full-disk", "slow-disk", "sync-error", "rot")
CLOCKS = ("clock",)
KINDS = (*PROTOCOL, *LINKS, *PROCESSES, *DISKS, *CLOCKS)

CLIENTS = 0
"""Stands for all clients, among the ends of a link."""
ALWAYS = -1
MOST = 1e9
"""Seconds, and bytes a second: more is a slip."""


@dataclass(slots=True)
class When:
    """Which of the calls that a fault is about it hits. `times`: so many (ALWAYS: all), from call `first` on (1 is the
    first), each with `probability`, which `seed` and the number of the call decide.
    """

    times: int = 1
    first: int = 1
    probability: float = 1.0
    seed: int = 0

    def hits(self, call: int, fired: int) -> bool:
        """Whether the fault happens to this call (1 is the first), having happened `fired` times before."""
        if call < self.first or 0 <= self.times <= fired:
            return False
        return self.probability >= 1.0 or Random(f"{self.seed} {call}").random() < self.probability

    def __str__(self) -> str:
        words = "always" if self.times == ALWAYS else "once" if self.times == 1 else f"{self.times} times"
        if self.first > 1:
            words += f" from call {self.first} on"
        if self.probability < 1.0:
            words += f" with probability {self.probability:g} (seed {self.seed})"
        return words


@dataclass(slots=True)
class Evidence:
    """What a fault has done. `calls`: what it could have hit; `fired`: what it did hit; `ms`: for how long, in all."""

    calls: int = 0
    fired: int = 0
    bytes: int = 0
    connections: int = 0
    ms: float = 0.0

    def __str__(self) -> str:
        shown = [f"fired={self.fired}"]
        shown += [f"{name}={getattr(self, name):g}" for name in ("bytes", "connections", "ms") if getattr(self, name)]
        return " ".join(shown)


@dataclass(slots=True)
class FaultSpec:
    """`brokers`: where it happens, all if empty. `links`: (from, to) of each direction; CLIENTS is an end too.

    `seconds`: how long a thing takes, or how long the fault lasts where it ends by itself. `amount` and `jitter`: what
    the kind says. `applied`: the request is carried out before the fault hides its answer.
    """

    kind: str
    number: int = 0
    brokers: list[int] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    api: str = ""
    code: str = ""
    applied: bool = False
    client: str = ""
    topic: str = ""
    topic_id: str = ""
    partition: int = -1
    group: str = ""
    transactional_id: str = ""
    seconds: float = 0.0
    amount: float = 0.0
    jitter: float = 0.0
    when: When = field(default_factory=When)
    evidence: Evidence = field(default_factory=Evidence)
    began: float = 0.0
    ended: float = 0.0

    @property
    def is_healed(self) -> bool:
        return self.ended > 0.0

    @property
    def has_ended_brokers(self) -> bool:
        """Whether its brokers are to be started again when it is healed."""
        return self.kind in ENDING or (self.kind == "sync-error" and self.evidence.fired > 0)

    def is_at(self, broker: int) -> bool:
        """Whether it may happen there."""
        return not self.is_healed and (not self.brokers or broker in self.brokers)

    def __str__(self) -> str:
        words = [self.kind]
        words += [f"{source or 'clients'}>{target or 'clients'}" for source, target in self.links]
        words += [str(broker) for broker in self.brokers]
        for name in ("api", "code", "client", "topic", "group", "transactional_id"):
            if value := getattr(self, name):
                words.append(value if name in ("api", "code") else f"{name}={value}")
        if self.partition >= 0:
            words.append(f"partition={self.partition}")
        if self.applied:
            words.append("after it was applied")
        words += [f"{name}={getattr(self, name):g}" for name in ("seconds", "amount", "jitter") if getattr(self, name)]
        if self.kind in PROTOCOL:
            words.append(str(self.when))
        return " ".join(words)


def refuse_impossible(spec: FaultSpec) -> None:
    """Raises ValueError for a fault that could have no effect, or another one than anybody can have meant."""
    when = spec.when
    if when.first < 1 or (when.times < 1 and when.times != ALWAYS):
        raise ValueError("calls are counted from 1, and a fault happens to one at least")
    if not 0.0 <= when.probability <= 1.0:
        raise ValueError(f"a probability of {when.probability}: it is from 0 to 1")
    if spec.kind == "drop" and when.probability >= 1.0:
        raise ValueError(f"a probability of {when.probability}: 0 to below 1; `cut` loses everything")
    if spec.kind == "bandwidth" and not 0 < spec.amount < MOST:
        raise ValueError("a bandwidth is above zero; `cut` lets nothing through")
    if spec.kind in ("delay", "slow-disk") and not 0 < spec.seconds < MOST:
        raise ValueError(f"{spec.kind} by {spec.seconds} seconds: it is a number above zero")
    if spec.kind == "slow-link" and not (min(spec.seconds, spec.jitter) >= 0 and 0 < spec.seconds + spec.jitter < MOST):
        raise ValueError(f"slow-link by {spec.seconds} seconds and up to {spec.jitter} more: that is not later")
    if any(source == target for source, target in spec.links):
        raise ValueError("a link has two ends")


def to_json(spec: FaultSpec) -> dict[str, Any]:
    """As plain values."""
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    for name in ("when", "evidence"):
        part = values[name]
        values[name] = {each.name: getattr(part, each.name) for each in fields(part)}
    return values


def from_json(values: dict[str, Any]) -> FaultSpec:
    """What `to_json` made. Raises TypeError, KeyError for what it did not."""
    parts = {"when": When(**values["when"]), "evidence": Evidence(**values["evidence"])}
    return FaultSpec(**{**values, **parts, "links": [(source, target) for source, target in values["links"]]})
