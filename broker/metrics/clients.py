"""Metrics of what clients ask: requests, their times, traffic, connections."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from raftlog.broker.core.traffic import Traffic
from raftlog.broker.metrics.families import counter, counters, gauge, gauges, histograms, with_total
from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from raftlog.broker.api.context import Services
    from raftlog.broker.metrics.sources import Sources

TOPICS_MAX: Final = 500
"""Topics that have series of their own, those with the most traffic; the rest is in the value for all."""

_TIMES: Final = (
    ("requestqueuetimems", "queue", "Milliseconds that requests waited for their turn"),
    ("localtimems", "local", "Milliseconds in the handler of the API"),
    ("remotetimems", "remote", "Milliseconds that the answer waited for followers, records or a quorum"),
    ("responsesendtimems", "send", "Milliseconds until the answer had left"),
    ("totaltimems", "total", "Milliseconds that requests took in all"),
)


def request_families(sources: Sources, services: Services) -> Iterator[Metric]:
    """Of each API that was asked for."""
    repeats = services.fetches.repeats
    asked = {api.name: count for api, count in services.counts.requests()}
    fetch, produce = APIS[ApiKey.FETCH].name, APIS[ApiKey.PRODUCE].name
    if repeats:
        asked[fetch] = asked.get(fetch, 0) + repeats
    metrics = "kafka_network_requestmetrics"
    yield counters(f"{metrics}_requests", "Requests", ["request"], (([name], asked[name]) for name in asked))
    errors = dict(services.counts.errors)
    yield counters(
        f"{metrics}_errors",
        "Errors in responses, which may have one for each of their partitions",
        ["request", "error"],
        (([APIS[ApiKey(key)].name, ErrorCode.of(code).name], count) for (key, code), count in errors.items()),
    )
    times = {APIS[ApiKey(key)].name: each for key, each in sources.times.by_api.items()}
    for name, part, what in _TIMES:
        by_api = {api: getattr(each, part) for api, each in times.items()}
        yield histograms(f"{metrics}_{name}", what, "request", by_api)
    topics = "kafka_server_brokertopicmetrics"
    yield counter(f"{topics}_totalproducerequests", "Produce requests", asked.get(produce, 0))
    yield counter(f"{topics}_totalfetchrequests", "Fetch requests", asked.get(fetch, 0))
    for name, key in (("produce", ApiKey.PRODUCE), ("fetch", ApiKey.FETCH)):
        failed = sum(count for (api, _), count in errors.items() if api == key)
        yield counter(f"{topics}_failed{name}requests", f"Partitions that a {name} request failed for", failed)


def traffic_families(services: Services) -> Iterator[Metric]:
    """Bytes and records, in all and by topic."""
    partitions = services.partitions
    total = Traffic()
    total.add(partitions.traffic_of_deleted)
    by_topic = list(partitions.traffic_by_topic())
    for _, traffic in by_topic:
        total.add(traffic)
    shown = heapq.nlargest(TOPICS_MAX, by_topic, key=lambda each: each[1].bytes_in + each[1].bytes_out)
    topics = "kafka_server_brokertopicmetrics"
    for name, what, field in (
        ("bytesin", "Bytes of record batches that were appended", "bytes_in"),
        ("messagesin", "Records that were appended", "records_in"),
        ("bytesout", "Bytes of record batches that consumers fetched", "bytes_out"),
    ):
        parts = (([topic], getattr(traffic, field)) for topic, traffic in shown)
        yield with_total(f"{topics}_{name}", what, "topic", getattr(total, field), parts)
    yield counter(f"{topics}_replicationbytesin", "Bytes fetched from leaders", total.replication_bytes_in)
    yield counter(f"{topics}_replicationbytesout", "Bytes that followers fetched", total.replication_bytes_out)


def connection_families(sources: Sources) -> Iterator[Metric]:
    """Who is connected."""
    counts = sources.connections()
    metrics = "kafka_server_socketservermetrics"
    open_now = (([name], count) for name, count in counts.by_listener.items())
    yield gauges(f"{metrics}_connection_count", "Connections of clients and brokers", ["listener"], open_now)
    yield counter(f"{metrics}_connection_creation", "Connections that were accepted", counts.accepted)
    yield counter(f"{metrics}_connection_close", "Connections that have ended", counts.accepted - counts.open)
    yield counter("raftlog_connections_refused", "Connections beyond a limit", counts.refused)
    yield gauge("raftlog_request_memory_bytes", "Memory that large requests are received into", counts.request_bytes)


def fetch_families(services: Services) -> Iterator[Metric]:
    """Fetches that wait, and their sessions."""
    fetches = services.fetches
    yield gauges(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait for records",
        ["delayedOperation"],
        [(["Fetch"], fetches.delayed_count)],
    )
    cache = "kafka_server_fetchsessioncache"
    yield gauge(f"{cache}_numincrementalfetchsessions", "Fetch sessions (KIP-227)", len(fetches.sessions))
