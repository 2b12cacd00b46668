"""Puts faults in by a schedule under a seed, with quiet periods, and writes down what each of them did."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from raftlog.client.core.errors import KafkaError
from raftlog.linearizability.harness.clients import Clients
from raftlog.linearizability.harness.faults import EVERYTHING, FAULTS, Fault, faults_named
from raftlog.linearizability.harness.plan import Interrupted, Plan, wait_for
from raftlog.linearizability.harness.scenarios import BIT_FLIP, TELL_THEIR_POINT, VOTERS
from raftlog.linearizability.harness.systems.system import NEW_DISK, Effect, System
from raftlog.linearizability.harness.workloads.catalogue import Workload
from raftlog.testing.faults.spec import ENDING
from raftlog.testing.process import BrokerDied

PERIOD_SECONDS = 6.0
"""About as long as a fault lasts, in a run that is long enough."""
PERIODS_MIN = 3
QUIET_PROBABILITY = 0.25
"""Of a period of `everything` in which nothing happens."""
AT_ONCE_MAX = 3
IN_SYNC_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Period:
    """Seconds since the load began."""

    at: float
    seconds: float
    faults: tuple[Fault, ...]


def schedule(name: str, seconds: float, seed: int, abilities: frozenset[str]) -> list[Period]:
    """When which faults begin and for how long: the same for the same seed. Several that are named take turns."""
    random = Random(f"{seed} faults")
    chosen = faults_named(name, abilities)
    longer = max(fault.longer for fault in chosen)
    turns = PERIODS_MIN if name == EVERYTHING else max(PERIODS_MIN, len(chosen))
    # A period and the quiet behind it take 1.6 units at the most, so that each fault has its turn.
    unit = min(PERIOD_SECONDS * longer, seconds / turns / 1.6)
    periods: list[Period] = []
    at = unit * 0.25
    while at + unit * 0.5 < seconds and name != "none":
        lasts = unit * random.uniform(0.5, 1.0)
        faults: tuple[Fault, ...] = (chosen[len(periods) % len(chosen)],)
        if name == EVERYTHING:
            count = 0 if random.random() < QUIET_PROBABILITY else random.randint(1, AT_ONCE_MAX)
            faults = _one_loses(random.sample(chosen, count))
        if faults:
            periods.append(Period(round(at, 3), round(lasts, 3), faults))
        at += lasts + unit * random.uniform(0.3, 0.6)
    return periods


def _one_loses(faults: list[Fault]) -> tuple[Fault, ...]:
    losing = [fault for fault in faults if fault.loses_records]
    return tuple(fault for fault in faults if fault not in losing[1:])


def _healing_order(each: tuple[int, Effect]) -> tuple[int, int]:
    """A broker may be unable to start on a full disk, or without the others. A vote is given by a majority."""
    number, effect = each
    return 2 if effect.kind == VOTERS else int(effect.kind in ENDING), -number


@dataclass(slots=True)
class Put:
    """A fault that was put in, or could not be."""

    number: int
    name: str
    kind: str
    is_effective: bool | None = None


@dataclass(slots=True)
class Done:
    """What has happened: `put` by number; `failures` are faults that could not be put in or healed."""

    put: dict[int, Put] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    broken_by: str = ""
    """The error of the harness itself after which no more faults were put in."""

    @property
    def all_put(self) -> list[Put]:
        """A copy: another thread puts in more."""
        return list(self.put.values())

    @property
    def names(self) -> set[str]:
        """Of the faults that were put in."""
        return {each.name for each in self.all_put}

    def effective(self) -> Counter[str]:
        """How often each named fault had an effect; a story that tells its point, how often it came to it."""
        return Counter(
            each.name
            for each in self.all_put
            if each.is_effective and (each.kind == each.name or each.name not in TELL_THEIR_POINT)
        )


class Nemesis:
    """A thread between `start` and `stop`. `write` takes a line of faults.jsonl."""

    def __init__(
        self,
        system: System,
        workload: Workload,
        clients: Clients,
        seed: int,
        *,
        periods: list[Period],
        write: Callable[[dict[str, Any]], None],
    ) -> None:
        self._system = system
        self._workload = workload
        self._clients = clients
        self._seed = seed
        self._periods = periods
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="verify-nemesis", daemon=True)
        self.done = Done()
        self.now = ""
        """What is in force, for the progress line."""
        self._damaged: set[int] = set()
        """Brokers with a flipped bit that nobody may have read yet."""
        self._behind: set[int] = set()
        """Brokers that have lost records."""
        self._late: dict[str, list[int]] = {}
        """Failures to start brokers again, and which: they may come up later, or get another disk."""

    def start(self) -> None:
        """The load begins now."""
        self._thread.start()

    @property
    def has_done_each(self) -> bool:
        """Whether each fault of the schedule was put in, or nothing more will be."""
        wanted = {fault.name for period in self._periods for fault in period.faults}
        return not self._thread.is_alive() or wanted <= self.done.names

    def stop(self) -> None:
        """Heal what is in force, and return."""
        self._over.set()
        self._thread.join()
        self._replace_disks()
        states = self._system.states()
        late, self._late = self._late, {}
        self.done.failures += [words for words, ids in late.items() if any(states[each] != "up" for each in ids)]

    def _run(self) -> None:
        try:
            self._all_periods()
        except Interrupted:
            pass
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            self.done.broken_by = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def _all_periods(self) -> None:
        began = time.monotonic()
        for index, period in enumerate(self._periods):
            if self._over.wait(max(0.0, began + period.at - time.monotonic())):
                return
            self._replace_disks()
            self._period(index, self._safe(period))

    def _period(self, index: int, period: Period) -> None:
        open_effects: dict[int, Effect] = {}
        try:
            self._put_all(index, period, open_effects)
        finally:
            for number, effect in sorted(open_effects.items(), key=_healing_order):
                self._heal(number, effect)
            self.now = ""

    def _put_all(self, index: int, period: Period, open_effects: dict[int, Effect]) -> None:
        until = time.monotonic() + period.seconds
        for at, fault in enumerate(period.faults):
            self.now = ", ".join(each.name for each in period.faults)
            plan = Plan(
                self._system,
                self._workload,
                self._clients,
                Random(f"{self._seed} {index} {at}"),
                period.seconds,
                self._over,
                lambda effect, name=fault.name: open_effects.update({self._begun(name, effect): effect}),  # type: ignore[misc]
                lambda effect: self._heal_early(open_effects, effect),
            )
            self._put(fault, plan)
        if period.faults:
            self._over.wait(max(0.0, until - time.monotonic()))

    def _replace_disks(self) -> None:
        """Of brokers that have ended: in a long run all would be gone in time, one flipped bit after the other."""
        for broker in self._system.lost_disks():
            self._replace_disk(broker)

    def _replace_disk(self, broker: int) -> None:
        try:
            effect = self._system.replace_disk(broker)
        except (BrokerDied, OSError) as error:
            self._failed(NEW_DISK, error)
            return
        if effect is not None:
            self._damaged.discard(broker)
            self._heal(self._begun(NEW_DISK, effect), effect)

    def _safe(self, period: Period) -> Period:
        """Without the faults that lose records, if a broker that has lost some is not as it was again: the second of
        three replicas may lose what was acknowledged. Raises Interrupted.
        """
        losing = [each for each in period.faults if each.loses_records]
        if not losing:
            return period
        for broker in sorted(self._damaged):
            self._replace_disk(broker)
        is_whole = lambda: self._system.in_sync(self._behind)  # noqa: E731
        if not self._damaged and wait_for(is_whole, IN_SYNC_SECONDS_MAX, self._over):
            self._behind.clear()
            return period
        for each in losing:
            self._failed(each.name, RuntimeError(f"brokers {sorted(self._behind)} have not all that they lost"))
        return replace(period, faults=tuple(each for each in period.faults if not each.loses_records))

    def _heal_early(self, open_effects: dict[int, Effect], effect: Effect) -> None:
        for number in [number for number, each in open_effects.items() if each is effect]:
            # What else is in force may keep a broker from starting, and is healed later.
            self._heal(number, open_effects.pop(number), is_last=False)

    def _put(self, fault: Fault, plan: Plan) -> None:
        try:
            fault.put(plan)
        except Interrupted:
            pass
        except (RuntimeError, KafkaError, OSError, AssertionError, BrokerDied) as error:
            self._failed(fault.name, error)
            if fault.loses_records:
                self._behind.update(self._system.broker_ids)  # it may have happened, to any of them

    def _begun(self, name: str, effect: Effect) -> int:
        number = len(self.done.put) + 1
        self.done.put[number] = Put(number, name, effect.kind)
        line = {"type": "begin", "number": number, "kind": effect.kind, "fault": name, "target": effect.target}
        self._write(line | {"brokers": effect.brokers, "links": effect.links, "time": time.monotonic_ns()})
        if name in FAULTS and FAULTS[name].loses_records:
            self._behind.update(effect.brokers)
            if effect.kind == name == BIT_FLIP:
                self._damaged.update(effect.brokers)
        return number

    def _heal(self, number: int, effect: Effect, *, is_last: bool = True) -> None:
        error = None
        try:
            effect.heal()
        except (BrokerDied, OSError, RuntimeError, AssertionError) as failed:
            error = str(failed).partition("\n")[0]
            words = f"{effect.kind} of {effect.target} could not be healed: {error}"
            if is_last and isinstance(failed, BrokerDied) and effect.brokers:
                self._late[words] = effect.brokers
            elif is_last:
                self.done.failures.append(words)
        evidence = dict(effect.evidence())
        self.done.put[number].is_effective = evidence.get("fired", 0) > 0
        line = {"type": "end", "number": number, "time": time.monotonic_ns(), "evidence": evidence, "error": error}
        self._write(line | {"effect": self.done.put[number].is_effective})

    def _failed(self, name: str, error: BaseException) -> None:
        number = len(self.done.put) + 1
        self.done.put[number] = Put(number, name, name, False)
        now = time.monotonic_ns()
        self._write({"type": "begin", "number": number, "kind": name, "fault": name, "target": "", "brokers": [],
                     "links": [], "time": now})  # fmt: skip
        self._write({"type": "end", "number": number, "time": now, "effect": False, "evidence": {},
                     "error": str(error).partition("\n")[0]})  # fmt: skip
        self.done.failures.append(f"{name} could not be put in: {str(error).partition(chr(10))[0]}")
