from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from raftlog.broker.core.coordinator.pending_writes import PendingWrites
from raftlog.wire.ids import ProducerId

Step = tuple[Literal["plain", "write", "remove", "commit", "abort"], int, str]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "write", "write", "remove", "commit", "abort"]),
        st.integers(1, 3),
        st.sampled_from("ab"),
    ),
    max_size=25,
)


class Model:
    """The log itself: what counts is looked up in it from the beginning, each time."""

    def __init__(self, steps: list[Step]) -> None:
        self.values: dict[str, int] = {}
        self.open: dict[int, dict[str, int]] = {}
        for offset, (kind, producer, key) in enumerate(steps):
            if kind == "plain":
                self.values[key] = offset
            elif kind == "write":
                self.open.setdefault(producer, {})[key] = offset
            elif kind == "remove":
                self.values.pop(key, None)
                for writes in self.open.values():
                    writes.pop(key, None)
            else:
                for name, written in self.open.pop(producer, {}).items():
                    if kind == "commit" and written > self.values.get(name, -1):
                        self.values[name] = written


def replay(steps: list[Step]) -> tuple[dict[str, int], PendingWrites[str, int]]:
    values: dict[str, int] = {}
    pending: PendingWrites[str, int] = PendingWrites()
    for offset, (kind, producer, key) in enumerate(steps):
        match kind:
            case "plain":
                pending.overtake(key)
                values[key] = offset
            case "write":
                pending.write(ProducerId(producer), key, offset)
            case "remove":
                values.pop(key, None)
                pending.remove(key)
            case "commit" | "abort":
                values.update(pending.end(ProducerId(producer), committed=kind == "commit"))
        pending.check_invariants()
    return values, pending


@given(STEPS)
def test_the_later_write_in_the_log_counts_whichever_transaction_ends_first(steps: list[Step]) -> None:
    values, pending = replay(steps)
    model = Model(steps)
    assert values == model.values
    assert set(pending) == {key for writes in model.open.values() for key in writes}


@given(STEPS, STEPS)
def test_what_is_pending_can_be_built_again_and_ends_in_the_same_way(before: list[Step], ends: list[Step]) -> None:
    _, pending = replay(before)
    again: PendingWrites[str, int] = PendingWrites()
    for producer_id, key, value in pending.items():
        again.write(producer_id, key, value)
    assert again == pending
    for kind, producer, _ in ends:
        committed = kind == "commit"
        ended, other = (p.end(ProducerId(producer), committed=committed) for p in (pending, again))
        assert sorted(ended) == sorted(other)
    assert again == pending
