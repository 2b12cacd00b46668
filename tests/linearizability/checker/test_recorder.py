"""Recording: from threads and tasks, with intervals that always hold the real ones."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, EventType, HistoryError
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.recorder import Recorder
from raftlog.linearizability.checker.verdict import Invalid, Valid


def test_outcomes_errors_and_annotations_are_kept() -> None:
    ticks = iter(range(100))
    recorder = Recorder(lambda: next(ticks))
    done, failed, lost, open_ = (recorder.invoke(number, "add", 1, key="k") for number in range(4))
    recorder.annotate("kill", lane="faults", details="broker 1")
    recorder.ok(done, 1)
    recorder.fail(failed, "refused")
    recorder.info(lost, "timed out")
    history = recorder.history("test")
    history.check_invariants()
    assert [op.outcome for op in (done, failed, lost, open_)] == [OK, FAIL, INFO, INFO]
    assert (failed.error, lost.error, open_.returned, done.key) == ("refused", "timed out", None, "k")
    assert [(note.label, note.lane, note.details) for note in history.annotations] == [("kill", "faults", "broker 1")]
    with pytest.raises(HistoryError, match="completed twice"):
        recorder.ok(done)


def test_a_history_can_be_had_again_after_more_was_recorded() -> None:
    recorder = Recorder(time.monotonic_ns)
    first = recorder.invoke(1, "add", 1)
    assert len(recorder.history()) == 1
    recorder.ok(first, 1)
    recorder.ok(recorder.invoke(1, "read"), 1)
    assert [op.outcome for op in recorder.history()] == [OK, OK]


@pytest.mark.parametrize("broken", [False, True])
def test_threads_record_what_really_overlapped(broken: bool) -> None:
    recorder = Recorder(time.monotonic_ns)
    lock = threading.Lock()
    value = 0

    def work(process: int) -> None:
        nonlocal value
        for number in range(200):
            operation = recorder.invoke(process, "add", 1)
            with lock:
                value += 1
                answer = value
            if broken and process == 2 and number == 150:
                answer -= 60
            recorder.ok(operation, answer)

    threads = [threading.Thread(target=work, args=(process,)) for process in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert isinstance(check(recorder.history(), Counter()), Invalid if broken else Valid)


def test_tasks_record_too() -> None:
    async def story() -> Recorder:
        recorder = Recorder(time.monotonic_ns)
        value = 0

        async def work(process: str) -> None:
            nonlocal value
            for _ in range(20):
                operation = recorder.invoke(process, "add", 1)
                await asyncio.sleep(0)
                value += 1
                answer = value
                await asyncio.sleep(0)
                recorder.ok(operation, answer)

        await asyncio.gather(*(work(f"client {number}") for number in range(5)))
        return recorder

    assert isinstance(check(asyncio.run(story()).history(), Counter()), Valid)


def test_stamps_that_two_threads_took_the_wrong_way_round_only_widen_an_interval() -> None:
    stamps = iter([10, 5, 20])
    recorder = Recorder(lambda: next(stamps))
    early = recorder.invoke(1, "add", 1)
    late = recorder.invoke(2, "add", 1)
    recorder.ok(early, 1)
    kinds = [kind for kind, _ in recorder.drain()]
    assert kinds == [EventType.INVOKE, EventType.INVOKE, EventType.OK]
    assert (early.call, late.call, early.returned) == (10, 10, 20)
