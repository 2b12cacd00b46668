"""Short histories for tests: operations one after the other, or overlapping, each in a line."""

from __future__ import annotations

from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation, Outcome, Process
from raftlog.linearizability.checker.kafka import Judgement, KafkaOptions, KafkaReport, analyze

MILLISECOND = 1_000_000


class Story:
    """Collects operations. Each takes 1 ms and begins 1 ms after the one before, unless `at` gives its interval."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.operations: list[Operation] = []
        self._now = 0

    def do(
        self,
        process: Process,
        function: str,
        given: Any = None,
        output: Any = None,
        *,
        outcome: Outcome = OK,
        at: tuple[int, int | None] | None = None,
        error: str | None = None,
    ) -> Story:
        """One operation; `at` is in milliseconds."""
        if at is None:
            at = (self._now, self._now + 1)
        call, returned = at
        self._now = max(self._now, (returned if returned is not None else call) + 1)
        self.operations.append(
            Operation(
                process,
                function,
                given,
                output,
                None,
                call * MILLISECOND,
                None if returned is None else returned * MILLISECOND,
                outcome,
                error,
                line=len(self.operations) + 1,
            )
        )
        return self

    def send(self, process: Process, key: Any, value: Any, offset: int | None = None, **more: Any) -> Story:
        """One send; without an outcome it is ok."""
        answer = [["send", key, [offset, value]]]
        if more.get("outcome", OK) is not OK and offset is None:
            answer = None  # type: ignore[assignment]
        return self.do(process, "send", [["send", key, value]], answer, **more)

    def poll(self, process: Process, records: dict[Any, list[tuple[int | None, Any]]], **more: Any) -> Story:
        """One poll; `rebalance` and `ends` go with it."""
        answer: Any = [["poll", _lists(records)]]
        if "ends" in more:
            answer[0].append(more.pop("ends"))
        if "rebalance" in more:
            answer = {"ops": answer, "rebalance": more.pop("rebalance")}
        return self.do(process, "poll", [["poll"]], answer, **more)

    def txn(self, process: Process, *micro: Any, **more: Any) -> Story:
        """One transaction: ("send", key, value, offset), ("poll", records) or ("commit", group, offsets)."""
        given, answer = [], []
        for one in micro:
            if one[0] == "send":
                given.append(["send", one[1], one[2]])
                answer.append(["send", one[1], [one[3], one[2]]])
            elif one[0] == "poll":
                given.append(["poll"])
                answer.append(["poll", _lists(one[1])])
            else:
                given.append(list(one))
                answer.append(list(one))
        asked: Any = given
        producer = more.pop("producer", None)
        if producer is not None:
            asked = {"ops": given, "producer": producer[0], "epoch": producer[1]}
        answered: Any = answer
        partly = more.pop("partly", False)
        if more.get("outcome", OK) is not OK and not partly:
            answered = None
        return self.do(process, "txn", asked, answered, **more)

    def history(self) -> History:
        return History.of(self.operations)

    def report(self, **options: Any) -> KafkaReport:
        """Analyse it."""
        return analyze(self.history(), KafkaOptions(**{**self.options, **options}))

    def errors(self, **options: Any) -> list[str]:
        """The names of the errors found, in alphabetical order."""
        return names(self.report(**options), Judgement.ERROR)

    def allowed(self, **options: Any) -> list[str]:
        """The names of what is found and allowed."""
        return names(self.report(**options), Judgement.ALLOWED)


def names(report: KafkaReport, judgement: Judgement) -> list[str]:
    return sorted(anomaly.name for anomaly in report.anomalies if anomaly.judgement is judgement)


def _lists(records: dict[Any, list[tuple[int | None, Any]]]) -> dict[Any, list[list[Any]]]:
    return {key: [[offset, value] for offset, value in pairs] for key, pairs in records.items()}


__all__ = ["FAIL", "INFO", "OK", "Story", "names"]
