"""What a run found to be broken, and what a run says when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlog.linearizability.simulator.faults import Fault


class Violation(Exception):
    """An invariant does not hold. `invariant` is its short name; the text says where and how."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


@dataclass(slots=True)
class RunResult:
    """One run. `digest`: the hash of its trace; `seconds`: virtual ones."""

    part: str
    seed: int
    faults: Sequence[Fault]
    violation: str = ""
    invariant: str = ""
    at: float = 0.0
    digest: str = ""
    events: int = 0
    seconds: float = 0.0
    done: dict[str, int] = field(default_factory=dict)
    """Faults that had an effect, by kind."""
    counts: dict[str, int] = field(default_factory=dict)
    """What the run did: commits, elections, acknowledgements."""
    reached: dict[str, int] = field(default_factory=dict)
    """How often what `properties` names has happened, where that was watched."""
    lines: list[str] = field(default_factory=list)
    """The trace, when it was kept."""

    @property
    def failed(self) -> bool:
        """Whether an invariant did not hold."""
        return bool(self.invariant)
