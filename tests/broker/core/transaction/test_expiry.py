"""When a transactional id is forgotten, and which transactions an administrator is shown."""

from __future__ import annotations

import pytest

from raftlog.broker.core.transaction.listing import TransactionFilter, list_transactions, states_by_name
from raftlog.broker.core.transaction.state import HAS_ENDED, STATE_NAMES, TransactionState
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from tests.broker.core.transaction.transaction_world import CONFIG, ID, P0, World, identity, metadata

S = TransactionState


@pytest.mark.parametrize("state", [*sorted(HAS_ENDED), S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_id_expires_when_nobody_has_used_it_for_long_but_never_with_a_transaction(state: TransactionState) -> None:
    world = World()
    world.set(metadata(state)._replace(last_update_ms=world.now.wall_ms))
    world.pass_ms(CONFIG.id_expiration_ms - 1)
    assert not world.expire()
    world.pass_ms(1)
    assert world.expire() is (state in HAS_ENDED)
    assert (ID in world.shard.transactions) is (state not in HAS_ENDED)


def test_a_producer_whose_id_has_expired_is_unknown_and_begins_with_another() -> None:
    world = World()
    producer = identity(*world.init()[1:])
    world.pass_ms(CONFIG.id_expiration_ms)
    assert world.expire()
    assert world.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.init(producer) == (ErrorCode.NONE, producer.producer_id + 1, 0)


def test_states_have_kafkas_names() -> None:
    assert list(STATE_NAMES.values()) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert states_by_name(["Ongoing", "Gone", "Empty", "Gone"]) == (frozenset({S.ONGOING, S.EMPTY}), ["Gone"])


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"producer_ids": frozenset({ProducerId(2), ProducerId(9)})}, ["b"]),
        ({"has_states": True, "states": frozenset({S.ONGOING})}, ["a", "b"]),
        ({"has_states": True}, []),
        ({"duration_ms": 0}, ["a", "c"]),
        ({"duration_ms": 49}, ["a", "c"]),
        ({"duration_ms": 50}, ["c"]),
        ({"duration_ms": 0, "has_states": True, "states": frozenset({S.ONGOING})}, ["a"]),
    ],
)
def test_a_list_has_what_passes_every_filter(wanted: dict[str, object], names: list[str]) -> None:
    world = World()
    now = world.now.wall_ms
    transactions = [
        ("a", metadata(S.ONGOING, producer_id=1, start_ms=now - 50)),
        ("b", metadata(S.ONGOING, producer_id=2, start_ms=now)),
        ("c", metadata(S.EMPTY, producer_id=3)),
    ]
    nothing = TransactionFilter(frozenset(), has_states=False, states=frozenset(), duration_ms=-1)
    found = list_transactions(transactions, nothing._replace(**wanted), world.now)  # type: ignore[arg-type]
    assert [name for name, _ in found] == names
