"""Followers that fall silent: those who wait for them go on without, and they come back over new connections."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from raftlog.broker.core.replica import leadership as leaderships
from raftlog.broker.core.replica.following import Backoff
from raftlog.broker.core.replica.leadership import HEARD_MS_MAX, Leadership, LeaderTerms
from raftlog.broker.runtime import link as links
from raftlog.broker.runtime.link import Link
from raftlog.broker.runtime.replication import replication
from raftlog.broker.runtime.replication.fetcher import Fetcher
from raftlog.broker.runtime.replication.settings import FetcherSettings
from raftlog.metadata.records import PartitionState
from raftlog.raft.silent_peers import end_when_silent
from raftlog.wire.ids import BrokerEpoch, LeaderEpoch, PartitionEpoch
from tests.broker.brokers import Cluster, run
from tests.broker.core.replica.world import Contact
from tests.waiting import until

LAG_MS_MAX = 30_000


def led(isr: tuple[int, ...]) -> tuple[Leadership, dict[int, Contact]]:
    """What broker 1 leads with the followers 2 and 3, of which both were heard just now, at 5."""
    terms = LeaderTerms(1, LAG_MS_MAX, lambda *_: True, lambda _: BrokerEpoch(1))
    state = PartitionState(0, 1, LeaderEpoch(0), PartitionEpoch(0), (1, 2, 3), isr)
    leadership = Leadership(terms, b"t" * 16, state, 0, 0)
    contacts = {}
    for broker_id, follower in leadership.followers.items():
        contacts[broker_id] = follower.contact = Contact()
        leadership.fetched(follower, 5, 0, 5, 0)
    return leadership, contacts


def test_who_is_about_to_join_is_waited_for_only_while_it_is_heard() -> None:
    leadership, contacts = led((1, 2))
    leadership.fetched(leadership.followers[2], 9, 0, 9, HEARD_MS_MAX + 1)
    assert leadership.committed_end(9, 5, HEARD_MS_MAX) == 5, "3 was caught up a moment ago, and is heard"
    assert leadership.committed_end(9, 5, HEARD_MS_MAX + 1) == 9, "it is silent"
    contacts[3].last_used_ms = HEARD_MS_MAX + 1
    assert leadership.committed_end(9, 5, HEARD_MS_MAX + 1) == 5, "it is heard again"
    contacts[3].is_lost = True
    assert leadership.committed_end(9, 5, HEARD_MS_MAX + 1) == 9, "its connection has ended"


def test_a_lost_follower_is_left_out_if_it_lacks_something_and_does_not_come_back_before_it_is_heard() -> None:
    leadership, contacts = led((1, 2, 3))
    contacts[3].is_lost = True
    assert leadership.lost() == [3]
    assert leadership.shrink(5, 100, frozenset({3})) is None, "it has everything"
    assert leadership.shrink(9, 100) is None, "it may still come back"
    proposal = leadership.shrink(9, 100, frozenset({3}))
    assert proposal is not None and [member.broker_id for member in proposal.isr] == [1, 2]
    leadership, contacts = led((1, 2))
    contacts[3].is_lost = True
    assert leadership.expand(leadership.followers[3], 5) is None
    contacts[3].is_lost = False
    assert leadership.expand(leadership.followers[3], 5) is not None


def test_a_follower_whose_connection_has_ended_is_left_out_when_a_producer_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            cluster[3].replication.close()
            end = cluster[1].append("b") + 1
            await until(lambda: cluster[1].high_watermark() == end)
            assert cluster.state().isr == (1, 2)

    run(story)


def test_a_follower_that_never_fetched_from_a_new_leader_is_left_out_when_a_producer_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link was cut before it came: no connection ends, and replica.lag.time.max.ms would be waited for."""
    monkeypatch.setattr(replication, "FIRST_FETCH_MS_MAX", 100)

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            monkeypatch.setattr(cluster[3].replication, "_connect", lambda fetcher: None)
            cluster.create_topic((1, 2, 3))
            end = cluster[1].append("a") + 1
            await until(lambda: cluster[1].high_watermark() == end)
            assert cluster.state().isr == (1, 2)

    run(story)


@pytest.mark.parametrize("peer_is_silent", [True, False])
def test_a_follower_that_fetches_no_more_is_left_out_if_the_quorum_does_not_hear_it_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer_is_silent: bool
) -> None:
    """The link is cut and no connection ends; who is heard over another one is slow, and stays."""
    monkeypatch.setattr(leaderships, "HEARD_MS_MAX", 200)
    monkeypatch.setattr(replication, "CHECK_SECONDS", 0.02)

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            looks: list[int] = []
            peers = frozenset({3} if peer_is_silent else ())
            monkeypatch.setattr(cluster[1].replication, "_silent_peers", lambda: looks.append(1) or peers)
            cluster.create_topic((1, 2, 3))
            cluster[1].append("a")
            await until(cluster.is_replicated)
            assert cluster.state().isr == (1, 2, 3), "it fetches"
            for fetcher in cluster[3].replication._fetchers.values():
                monkeypatch.setattr(fetcher, "_send", lambda: None)
            end = cluster[1].append("b") + 1
            begun = len(looks)
            if peer_is_silent:
                await until(lambda: cluster[1].high_watermark() == end)
                assert cluster.state().isr == (1, 2)
            else:
                await until(lambda: len(looks) > begun + 30)
                assert cluster[1].high_watermark() < end and cluster.state().isr == (1, 2, 3)

    run(story)


def test_who_was_heard_in_another_partition_is_only_slow_with_a_new_one() -> None:
    leadership, contacts = led((1, 2, 3))
    assert leadership.never_heard() == [] and leadership.heard(HEARD_MS_MAX) == [2, 3]
    contacts[3].is_lost = True
    assert leadership.heard(HEARD_MS_MAX) == [2] and leadership.heard(HEARD_MS_MAX + 1) == []
    state = PartitionState(0, 1, LeaderEpoch(0), PartitionEpoch(0), (1, 2, 3), (1, 2))
    terms = LeaderTerms(1, LAG_MS_MAX, lambda *_: True, lambda _: BrokerEpoch(1))
    assert Leadership(terms, b"t" * 16, state, 0, HEARD_MS_MAX).never_heard() == [2]


class Silent(asyncio.Protocol):
    """A leader that takes what it is sent, and answers nothing."""

    def __init__(self, met: list[Silent]) -> None:
        met.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


async def test_a_leader_that_is_heard_of_again_and_has_not_answered_is_asked_over_a_new_connection() -> None:
    loop = asyncio.get_running_loop()
    met: list[Silent] = []
    server = await loop.create_server(lambda: Silent(met), "127.0.0.1", 0)
    fetcher = Fetcher(loop, 2, 1, FetcherSettings(fetch_wait_max_ms=0), lambda: 1)
    fetcher.link.connect(server.sockets[0].getsockname()[:2])
    await until(lambda: fetcher.link.is_open)
    fetcher.in_contact()
    assert fetcher.link.is_open, "nothing was asked"
    fetcher.link.send(fetcher._request, 17, lambda _: None)
    fetcher.link.oldest_request_at -= 10
    fetcher.in_contact()
    await until(lambda: len(met) == 2 and fetcher.link.is_open)
    fetcher.close()
    server.close()


async def test_who_does_not_answer_a_connection_is_tried_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first packet that was lost is sent again by the kernel only after one, three and seven seconds."""
    monkeypatch.setattr(links, "ANOTHER_TRY_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    met: list[Silent] = []
    server = await loop.create_server(lambda: Silent(met), "127.0.0.1", 0)
    connect, tried, given_up = loop.create_connection, [], []

    async def lossy(*arguments: object, **options: object) -> object:
        tried.append(len(tried))
        if len(tried) < 3:
            try:
                await asyncio.Event().wait()
            finally:
                given_up.append(1)
        return await connect(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "create_connection", lossy)
    opened: list[int] = []
    link = Link(loop, "1", "test", backoff=Backoff(5, 50), on_open=lambda: opened.append(1), on_lost=lambda: None)
    link.connect(server.sockets[0].getsockname()[:2])
    await until(lambda: link.is_open and len(given_up) == 2)
    assert opened == [1]
    link.close()
    server.close()


async def test_a_connection_that_is_there_just_when_its_time_is_over_is_made_anew(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop closes it when the call is given up, and its protocol hears nothing: the next request stopped the broker.
    So it may be after a pause, when what comes and the end of the time are looked at together.
    """
    loop = asyncio.get_running_loop()
    met: list[Silent] = []
    server = await loop.create_server(lambda: Silent(met), "127.0.0.1", 0)
    connect, tried = loop.create_connection, []

    async def too_late_at_first(*arguments: object, **options: object) -> object:
        tried.append(len(tried))
        transport, protocol = await connect(*arguments, **options)  # type: ignore[arg-type]
        if len(tried) == 1:
            transport.set_protocol(asyncio.Protocol())
            transport.abort()
            raise TimeoutError
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", too_late_at_first)
    told: list[str] = []
    on_open, on_lost = partial(told.append, "open"), partial(told.append, "lost")
    link = Link(loop, "1", "test", backoff=Backoff(5, 50), on_open=on_open, on_lost=on_lost)
    link.connect(server.sockets[0].getsockname()[:2])
    await until(lambda: len(met) == 2 and link.is_open)
    assert told == ["open", "lost", "open"]
    link.close()
    server.close()


def test_the_kernel_is_told_to_give_up_silent_connections() -> None:
    class Options(dict[int, int]):
        def setsockopt(self, _level: int, name: int, value: int) -> None:
            self[name] = value

    options = Options()
    end_when_silent(options)
    assert len(options) > 1
    end_when_silent(None)
