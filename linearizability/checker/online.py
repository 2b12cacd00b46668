"""The check of a history that is still growing: stops at the first violation, and forgets what is settled.

    online = OnlineCheck(Log())
    for event in recorder.drain():
        if (verdict := online.feed(event)) is not None:
            break  # Invalid or Unknown; nothing more will change it
    verdict = online.finish()

An answer can be judged once everything called before it has ended, because what was asked and answered by then is all
that can explain it. Memory is bounded by that stretch, by the operations of unknown outcome, and by the objects
themselves. An operation that stays open while `patience` others return is taken to be of unknown outcome: then a
violation is still a violation, but the verdict of a history without one is Unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from raftlog.linearizability.checker.budget import Budget, Meter, OutOfBudget, to_explain
from raftlog.linearizability.checker.history import Event, EventType, HistoryError, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import Model, NotOfModel, is_by_key
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.parts.online import OnlineLog, OnlinePart, OnlineSearch
from raftlog.linearizability.checker.verdict import Invalid, Limit, PartVerdict, Status, Unknown, Valid, Verdict

_PATIENCE = 10_000  # returns
_INVOKE = EventType.INVOKE
_ANNOTATION = EventType.ANNOTATION
_Calls: TypeAlias = tuple[Callable[[Operation], None], Callable[[Operation], bool]]  # what is told of one operation
_NO_KEY = object()


class OnlineCheck:
    """One growing history under check.

    Events must come in the order of their times; the operations may be changed by nobody but their recorder. Without
    a budget memory is limited by Budget's default.
    """

    def __init__(
        self,
        model: Model[Any],
        *,
        budget: Budget | None = None,
        time_unit: TimeUnit = TimeUnit.NANOSECONDS,
        patience: int = _PATIENCE,
        source: str | None = None,
    ) -> None:
        self.model = model
        self.verdict: Verdict | None = None
        self.operation_count = 0
        self._meter = Meter(budget or Budget())
        self._unit = time_unit
        self._patience = patience
        self._source = source
        self._parts: dict[Key, OnlinePart] = {}
        self._calls: dict[Key, _Calls] = {}  # of the parts
        self._part_of = None if is_by_key(model) else model.part

    def feed(self, event: Event) -> Verdict | None:
        """Take one event. Answers the verdict once it is certain: Invalid, or Unknown when the budget ran out.

        Raises HistoryError for an operation that the model does not know; of one on a log perhaps some events later.
        """
        return self.extend((event,))

    def extend(self, events: Iterable[Event]) -> Verdict | None:
        """Take events until the verdict is certain: quicker than one by one. Leaves the others where they are."""
        if self.verdict is not None:
            return self.verdict
        try:
            if not self._take(events):
                self._validate()
                self._judge_all()
        except OutOfBudget as out:
            self._unknown(out.limit, f"Nothing contradicts the history so far, but the budget ran out: {out.reason}.")
        except NotOfModel as wrong:
            raise HistoryError(wrong.reason, wrong.operation.line, self._source) from None
        return self.verdict

    def _take(self, events: Iterable[tuple[EventType, Any]]) -> bool:
        """Hand each event to its part. Answers False at once when a part is bad."""
        part_at, calls = self._part_of, self._calls
        known: Any = _NO_KEY  # of the part that the last event was of
        count = self.operation_count
        try:
            # Every step in here counts: it is done twice for each operation.
            for kind, operation in events:
                if kind is _ANNOTATION:
                    continue
                key = operation.key if part_at is None else part_at(operation)
                if key is not known:
                    invoke, complete = calls[key] if key in calls else self._begin(key)
                    known = key
                if kind is _INVOKE:
                    operation.index = count
                    count += 1
                    invoke(operation)
                elif not complete(operation):
                    return False
            return True
        finally:
            self.operation_count = count

    def finish(self) -> Verdict:
        """The verdict on everything fed; what is still open is of unknown outcome."""
        if self.verdict is not None:
            return self.verdict
        try:
            self._validate()
        except NotOfModel as wrong:
            raise HistoryError(wrong.reason, wrong.operation.line, self._source) from None
        out = self._judge_all()
        if self.verdict is None:
            doubt = next((part.doubt for part in self._parts.values() if part.doubt is not None), None)
            if out is not None:
                self._unknown(out.limit, f"Nothing contradicts the history, but the budget ran out: {out.reason}.")
            elif doubt is not None:
                self._unknown("memory", f"Nothing contradicts the history, but {doubt}.")
            else:
                self.verdict = Valid(self.model, self._verdicts(Status.VALID), self.operation_count, self._seconds())
        assert self.verdict is not None
        return self.verdict

    def _validate(self) -> None:
        for part in self._parts.values():
            if not part.is_bad:
                part.validate()

    def _judge_all(self) -> OutOfBudget | None:
        """Judge what waits for open calls as if they never returned, and set the verdict if some part is bad.

        Another part than the one found first may have been bad before.
        """
        bad: list[tuple[Key, OnlinePart]] = []
        uncompared: list[Key] = []
        last: OutOfBudget | None = None
        for key, part in self._parts.items():
            try:
                if part.is_bad or not part.finish():
                    bad.append((key, part))
                elif part.doubt is not None:
                    uncompared.append(key)
            except OutOfBudget as out:
                uncompared.append(key)
                last = out
        if bad:
            self._invalid(bad, tuple(uncompared))
        return last

    def _begin(self, key: Key) -> _Calls:
        model = self.model
        # A subclass may promise something else.
        if isinstance(model, Log) and type(model) is Log:
            part: OnlinePart = OnlineLog(model, self._meter)
        else:
            part = OnlineSearch(model, self._meter, self._patience)
        self._parts[key] = part
        calls = self._calls[key] = part.invoke, part.complete
        return calls

    def _seconds(self) -> float:
        return self._meter.elapsed()

    def _verdicts(self, status: Status) -> tuple[PartVerdict, ...]:
        return tuple(PartVerdict(key, status, (), part.algorithm) for key, part in self._parts.items())

    def _unknown(self, limit: Limit, reason: str) -> None:
        parts = self._verdicts(Status.UNKNOWN)
        self.verdict = Unknown(self.model, parts, self.operation_count, self._seconds(), limit=limit, reason=reason)

    def _invalid(self, bad: list[tuple[Key, OnlinePart]], uncompared: tuple[Key, ...]) -> None:
        seconds = self._seconds()
        meter = Meter(to_explain(self._meter.rest()))
        told = [(part.witness(key, self._unit, meter), part.algorithm) for key, part in bad]
        told.sort(key=lambda item: item[0].prefix_end)
        parts = [PartVerdict(w.key, Status.INVALID, w.operations, algorithm, witness=w) for w, algorithm in told]
        keys = {key for key, _ in bad}
        parts += [part for part in self._verdicts(Status.UNKNOWN) if part.key not in keys]
        self.verdict = Invalid(
            self.model, tuple(parts), self.operation_count, seconds, witness=told[0][0], uncompared=uncompared
        )
