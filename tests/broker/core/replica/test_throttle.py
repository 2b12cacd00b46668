"""Which replicas are throttled: what a topic's settings name."""

from __future__ import annotations

from raftlog.broker.core.replica.throttle import ThrottledReplicas


def test_what_is_no_replica_is_passed_over_and_stops_no_broker_that_replays_it() -> None:
    replicas = ThrottledReplicas(f"0:1,a:1,1:{'2' * 5000}, 3:4 ")
    assert (0, 1) in replicas
    assert (3, 4) in replicas
    assert (1, 2) not in replicas
    assert (9, 9) in ThrottledReplicas("*")
