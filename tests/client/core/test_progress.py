"""How far a consumer's work is done, whatever order its batches are finished in."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.fetched import Slice
from raftlog.client.core.progress import CROWD, Position, Progress
from tests.effort import examples

HERE = ("t", 0)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.sampled_from("hhhodddwtfc"), st.integers(0, 5)), max_size=60))
def test_an_offset_moves_when_all_before_it_is_done(history: list[tuple[str, int]]) -> None:
    progress = Progress()
    end = 0
    out: list[tuple[int, list[tuple[tuple[str, int], object]]]] = []
    finished: set[int] = set()
    for step, which in history:
        match step:
            case "h":
                end += 2
                out.append((end, progress.hand_out([Slice(*HERE, [], end, 1)])))
            case "o":
                end += 1
                out.append((end, progress.hand_out_one(HERE, Position(end, 1))))
            case "d" if out:
                at, tickets = out.pop(which % len(out))
                assert progress.done(tickets)
                finished.add(at)
            case "w" if out and out[-1][0] == end:
                progress.withdraw(out.pop()[1])
            case "t":
                progress.take(HERE)
                assert progress.was_taken(HERE) and not any(progress.done(tickets) for _, tickets in out)
                out.clear()
                finished.clear()
                progress.begin_poll()
            case "c":
                progress.committed(progress.to_commit())
                assert not progress.to_commit()
            case _:
                continue
        progress.check_invariants()
        first = min((at for at, _ in out), default=end + 1)
        moved = progress.to_commit().get(HERE)
        assert moved is None or moved.offset == max((at for at in finished if at < first), default=-1)
        assert progress.is_busy([HERE]) == bool(out)


def test_what_was_fetched_before_a_partition_was_taken_away_is_not_handed_out_after_it_came_back() -> None:
    progress = Progress()
    other = ("t", 1)
    fetched = [Slice(*HERE, [], 7, 1), Slice(*other, [], 3, 1)]
    moves = progress.moves
    assert progress.not_moved(fetched, moves) == fetched
    progress.take(HERE)
    assert progress.not_moved(fetched, moves) == fetched[1:]
    again = [Slice(*HERE, [], 5, 1)]  # it has come back, further behind
    assert progress.not_moved(again, progress.moves) == again
    progress.forget(other)
    assert progress.not_moved(fetched, moves) == []


def test_what_is_done_behind_a_batch_that_never_will_be_fills_no_memory() -> None:
    progress = Progress()
    for end in range(5000):
        tickets = progress.hand_out([Slice(*HERE, [], end, 1)])
        assert end == 0 or progress.done(tickets)
    assert len(progress._outstanding[HERE]) <= 2 * CROWD and not progress.to_commit()


@pytest.mark.parametrize("held", [1, 3, 100])
def test_whoever_never_calls_done_fills_no_memory(held: int) -> None:
    """As who commits with a transaction, or is in no group: the newest batches are held, then let go."""
    progress = Progress()
    newest = deque[object](maxlen=held)
    for end in range(5000):
        newest.append(progress.hand_out([Slice(*HERE, [], end, 1)]))
    assert len(progress._outstanding[HERE]) <= held + 2 * CROWD
    assert progress.is_busy([HERE]) and not progress.to_commit()
    for each in newest:
        assert progress.done(each)  # type: ignore[arg-type]
    assert not progress.to_commit()  # what came before is not done
    progress.check_invariants()
