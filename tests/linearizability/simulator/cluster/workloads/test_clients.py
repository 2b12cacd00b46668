"""What a consumer of the simulated clients may be given."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.linearizability.simulator.cluster.workloads.clients import Way
from raftlog.linearizability.simulator.violation import Violation


def fail(invariant: str, text: str) -> None:
    raise Violation(invariant, text)


def way_of(consumer: Any) -> Callable[[int], None]:
    """Gives the consumer the record at an offset."""
    way = Way(cast(Any, SimpleNamespace(had=lambda *_: None, fail=fail)), consumer)
    return lambda offset: way.take([cast(Any, SimpleNamespace(topic="t", partition=0, offset=offset, value=b"1"))])


@pytest.mark.parametrize("offset", [0, 6, 8])
def test_within_one_assignment_no_record_is_left_out_and_none_comes_again(offset: int) -> None:
    take = way_of(SimpleNamespace(assignments=1))
    take(5)
    take(6)
    with pytest.raises(Violation, match=f"{offset} comes where 7 is due"):
        take(offset)


def test_another_assignment_goes_on_where_it_will() -> None:
    consumer = SimpleNamespace(assignments=1)
    take = way_of(consumer)
    take(5)
    consumer.assignments = 2
    take(3)
