"""Records on their way: whatever becomes of batches, their bytes are counted, and nobody who waits is forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.accumulator import Accumulator, Limits
from raftlog.client.core.errors import TimedOut
from raftlog.client.core.partition_queue import Verdict
from raftlog.client.core.producer_batch import ProducerBatch, ProducerIdentity
from raftlog.wire.errors import ErrorCode
from tests.effort import examples

LIMITS = Limits(batch_size=200, batch_records=3, linger=1.0, max_request_size=500, delivery_timeout=20.0)
IDENTITY = ProducerIdentity(7, 0)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.sampled_from("aaaasssrrnlexc"), st.integers(0, 2)), max_size=60))
def test_bytes_are_counted_until_there_is_an_outcome(history: list[tuple[str, int]]) -> None:
    accumulator = Accumulator(LIMITS, idempotent=True)
    under_way: list[ProducerBatch] = []
    now, offset = 0.0, 0
    for step, which in history:
        now += 0.5
        match step:
            case "a":
                size = accumulator.size_of("t", None, b"v" * 40 * which, ())
                accumulator.append(
                    ("t", which), None, b"v" * 40 * which, size=size, headers=(), timestamp=0, now=now
                )
            case "s":
                leaving = accumulator.depart(now, lambda partition: partition[1] % 2, IDENTITY)
                under_way += [batch for batches in leaving.requests.values() for batch in batches]
            case "r" if under_way:
                batch = under_way.pop(0)
                offset += batch.count
                if accumulator.queues[batch.partition].answered(batch, ErrorCode.NONE, offset, -1) is Verdict.AGAIN:
                    accumulator.retry(batch, now)
            case "n" | "l" if under_way:
                batch = under_way.pop(0)
                queue = accumulator.queues[batch.partition]
                if step == "n":
                    queue.answered(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
                else:
                    queue.unanswered(batch)
                accumulator.retry(batch, now + which)
            case "e":
                for batch in accumulator.expire(now):
                    accumulator.queues[batch.partition].give_up(batch, TimedOut("too late"))
            case "x":
                accumulator.fail_unsent(TimedOut("aborted"))
            case "c":
                accumulator.close_open()
            case _:
                continue
        accumulator.check_invariants()
    accumulator.fail_everything(TimedOut("closed"))
    accumulator.check_invariants()
    assert accumulator.buffered == 0


def test_parts_of_a_batch_that_was_too_large_are_not_failed_as_if_nothing_had_been_sent() -> None:
    """Their numbers would be missing, and nobody would give others: the partition would stand still."""
    accumulator = Accumulator(LIMITS, idempotent=True)
    for _ in range(3):
        accumulator.append(("t", 0), None, b"v", size=30, headers=(), timestamp=0, now=0.0)
    ((sent,),) = accumulator.depart(5.0, lambda _: 1, IDENTITY).requests.values()
    accumulator.queues["t", 0].answered(sent, ErrorCode.MESSAGE_TOO_LARGE, -1, -1)
    accumulator.retry(sent, 0.0)
    accumulator.append(("t", 0), None, b"v", size=30, headers=(), timestamp=0, now=5.0)
    accumulator.fail_unsent(TimedOut("another partition's records failed"))
    assert [batch.base_sequence for batch in accumulator.batches()] == [0, 1]
    assert not accumulator.queues["t", 0].has_gap


def test_bytes_of_a_batch_that_was_too_large_are_counted_until_all_of_it_has_an_outcome() -> None:
    accumulator = Accumulator(LIMITS, idempotent=True)
    for number in range(3):
        accumulator.append(("t", 0), None, b"v", size=30, headers=(), timestamp=1000 * number, now=0.0)
    size, queue = accumulator.buffered, accumulator.queues["t", 0]
    while accumulator.batches():
        assert accumulator.buffered == size
        ((sent,),) = accumulator.depart(5.0, lambda _: 1, IDENTITY).requests.values()
        code = ErrorCode.MESSAGE_TOO_LARGE if sent.count > 1 else ErrorCode.NONE
        if queue.answered(sent, code, 0, -1) is Verdict.AGAIN:
            accumulator.retry(sent, 0.0)
        accumulator.check_invariants()
    assert accumulator.buffered == 0
