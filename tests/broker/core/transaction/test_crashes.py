"""The coordinator dies at every step of a transaction: what was committed of its log says how it goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog.broker.core.transaction.state import EPOCH_EXHAUSTED, HAS_ENDED, IS_ENDING, TransactionState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.transaction.transaction_world import ID, P0, P1, World, identity, loaded, metadata

S, E = TransactionState, ErrorCode


def _life(world: World, committed: bool, version: int) -> None:
    """Two transactions, and each step of them that is written."""
    producer = identity(*world.init()[1:])
    for _ in range(2):
        world.add(producer, P0, client_version=version)
        world.add(producer, P1, client_version=version)
        ended = world.end(producer, committed, version)
        world.complete()
        if version == 2:
            producer = identity(*ended[1:])


def _time_out(world: World, committed: bool, version: int) -> None:
    producer = identity(*world.init()[1:])
    world.add(producer, P0, client_version=version)
    world.pass_ms(1_000_000)
    world.time_out()
    world.complete()


def _rotation(world: World, committed: bool, version: int) -> None:
    """With the last epoch of an id."""
    world.set(metadata(S.EMPTY, epoch=EPOCH_EXHAUSTED, client_version=version))
    last = identity(7, EPOCH_EXHAUSTED)
    world.add(last, P0, client_version=version)
    world.end(last, committed, version)
    world.complete()


@pytest.mark.parametrize("life", [_life, _time_out, _rotation])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_each_prefix_of_the_log_leads_to_a_state_in_which_the_transaction_ends_as_decided(
    life: Callable[[World, bool, int], None], committed: bool, version: int
) -> None:
    written = World(transaction_version=version)
    life(written, committed, version)
    assert len(written.log) >= 3
    for length in range(1, len(written.log) + 1):
        prefix = written.log[:length]
        world = World(transaction_version=version)
        world.now, world.last_id = written.now, 500
        world.shard = loaded(prefix)
        before = world.known
        assert (ID in world.shard.ongoing) is (before.state is S.ONGOING)
        assert (ID in world.shard.ending) is (before.state in IS_ENDING)
        if before.state is S.ONGOING:
            # Nothing was decided: the producer ends it as it likes, or it is aborted with time.
            producer = identity(before.producer_id, before.producer_epoch)
            assert world.end(producer, committed, version).error is E.NONE
            world.shard = loaded([*prefix, *world.log])
        if world.known.state in IS_ENDING:
            # Decided: nobody can make something else of it.
            decided = world.known
            assert world.known.partitions
            for wish in (True, False):
                assert (
                    world.end(identity(decided.producer_id, decided.producer_epoch), wish, version).error is not E.NONE
                )
            assert world.known == decided
            world.complete()
            expected = S.COMPLETE_COMMIT if decided.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
            assert world.known.state is expected
        assert world.known.state in HAS_ENDED
        # And the id goes on.
        again = world.init()
        assert again.error is E.NONE
        assert world.add(identity(*again[1:]), P0, client_version=version) is E.NONE


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_that_was_not_answered_is_answered_by_the_next_coordinator(committed: bool) -> None:
    written = World()
    producer = identity(*written.init()[1:])
    written.add(producer, P0)
    ended = written.end(producer, committed)
    world = World()
    world.shard = loaded(written.log)
    assert world.end(producer, committed).error is E.CONCURRENT_TRANSACTIONS
    assert world.end(producer, not committed).error is E.INVALID_TXN_STATE
    world.complete()
    assert world.end(producer, committed) == ended
    assert world.end(producer, not committed).error is E.INVALID_TXN_STATE


def test_a_failover_keeps_the_time_that_a_transaction_has_left() -> None:
    written = World()
    producer = identity(*written.init()[1:])
    written.add(producer, P0)
    world = World()
    world.shard, world.now = loaded(written.log), written.now
    world.pass_ms(60_000)
    assert not world.time_out()
    world.pass_ms(1)
    assert world.time_out()


def test_redpanda_6018_a_failover_does_not_forget_what_the_transaction_has_so_far() -> None:
    """There the next AddOffsets opened a new transaction silently, and the commit wrote the offsets only."""
    written = World()
    producer = identity(*written.init()[1:])
    written.add(producer, P0)
    world = World()
    world.shard, world.now = loaded(written.log), written.now
    offsets = ("__consumer_offsets", 3)
    assert world.add(producer, offsets, client_version=0) is E.NONE
    assert world.known.partitions == {P0, offsets}
    # And where the records were lost, the producer is told, and not given a new transaction.
    world = World()
    world.shard = loaded(written.log[:0])
    assert world.add(producer, offsets) is E.INVALID_PRODUCER_ID_MAPPING
