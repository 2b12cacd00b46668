"""How long new connections wait is what Kafka 4.3.1 lets them wait."""

from __future__ import annotations

from raftlog.broker.core.connection_rate import UNLIMITED, ConnectionRate, ConnectionRates

IN_A_BURST_MS = 230
"""How long a client took for its first connections, one after the other, when this was written down."""


def let_in(rate: ConnectionRate, count: int, began_ms: int = 0) -> list[int]:
    """When connections are let in whose client makes the next one as soon as the last one is."""
    now, moments = began_ms, []
    for _ in range(count):
        now += rate.accepted(now)
        moments.append(now)
    return moments


def test_a_burst_is_let_in_and_what_is_more_waits_as_in_kafka() -> None:
    rate = ConnectionRate(11, 1000, 2)
    assert [rate.accepted(at * IN_A_BURST_MS // 19) for at in range(20)] == [0] * 20
    told = [500, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000]
    assert let_in(rate, len(told), IN_A_BURST_MS) == told


def test_who_keeps_below_the_rate_never_waits() -> None:
    rate = ConnectionRate(11, 1000, 5)
    assert not any(rate.accepted(250 * number) for number in range(1000))


def test_a_window_is_as_long_and_as_many_as_was_set() -> None:
    rate = ConnectionRate(3, 5000, 1)
    assert [rate.accepted(0) for _ in range(11)] == [0] * 10 + [1000]
    assert rate.accepted(0) == 2000 and max(rate.accepted(0) for _ in range(10)) == 5000


def test_what_came_long_ago_does_not_count() -> None:
    rate = ConnectionRate(11, 1000, 1)
    assert max(rate.accepted(number) for number in range(100)) == 1000
    assert rate.accepted(11_200) == 0


def test_what_came_before_a_limit_was_set_counts_for_it() -> None:
    rate = ConnectionRate(11, 1000)
    assert [rate.accepted(0) for _ in range(100)] == [0] * 100
    rate.limit = 5
    assert rate.accepted(0) == 1000
    rate.limit = UNLIMITED
    assert rate.accepted(0) == 0


def test_with_a_limit_of_nothing_each_waits_as_long_as_it_can() -> None:
    assert ConnectionRate(11, 1000, 0).accepted(0) == 1000


def test_a_listener_waits_for_its_own_limit_and_for_that_of_all_but_between_brokers() -> None:
    rates = ConnectionRates(2, 1000, protected="BROKERS")
    rates.limit(3, {"CLIENTS": 2})
    assert [rates.accepted("CLIENTS", 0) for _ in range(3)] == [0, 0, 500]
    assert rates.accepted("OTHERS", 0) == 333, "they share the limit of all"
    assert not any(rates.accepted("BROKERS", 0) for _ in range(100))
    rates.limit(UNLIMITED, {"BROKERS": 50})
    assert rates.accepted("OTHERS", 0) == rates.accepted("CLIENTS", 0) == 0
    assert rates.accepted("BROKERS", 0) == 1000
