"""Three brokers under load as Prometheus sees them, and the dashboard of docs/ against what they tell."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from raftlog.testing import BrokerProcess, cluster
from tests.paths import ROOT
from tests.system.clients.confluent import consumer, producer, read_all, take
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

DASHBOARD = ROOT / "docs" / "grafana-dashboard.json"
FUNCTIONS = {"rate", "sum", "max", "by", "histogram_quantile", "le"}
OF_THE_SCRAPE = {"instance"}
RECORDS = 200
GROUP = "left"
COMMITTED = 10


class Seen:
    """One scrape: values by name and labels."""

    def __init__(self, text: str) -> None:
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.labels: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.values, f"{key} is told twice"
                self.values[key] = sample.value
                self.labels.setdefault(sample.name, set()).update(sample.labels)

    def value(self, name: str, **labels: str) -> float:
        """0 when there is no such series."""
        return self.values.get((name, frozenset(labels.items())), 0.0)


def http_address(broker: BrokerProcess) -> str:
    assert broker.log_file is not None
    found = re.findall(r"listening for http address=(\S+)", broker.log_file.read_text())
    return str(found[-1])


def scrape(broker: BrokerProcess) -> Seen:
    with urllib.request.urlopen(f"http://{http_address(broker)}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Seen(answer.read().decode())


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with cluster(3, settings={"raftlog.metrics.listener": "127.0.0.1:0"}) as running:
        yield World(running)


@pytest.fixture(scope="module")
def loaded(shared: World) -> World:
    """A cluster with records, a group that has gone again, and a request that failed."""
    topic = shared.create("loaded", 3)
    client = producer(shared.bootstrap)
    for number in range(RECORDS):
        client.produce(topic, b"x" * 100, partition=number % 3)
    assert client.flush(30) == 0
    assert len(read_all(shared.bootstrap, topic, RECORDS, partitions=3)) == RECORDS
    with consumer(shared.bootstrap, GROUP) as member:
        member.subscribe([topic])
        take(member, 1)  # it has to join twice: MEMBER_ID_REQUIRED (KIP-394)
        member.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    return shared


def scrape_all(world: World) -> list[Seen]:
    with ThreadPoolExecutor() as threads:
        return list(threads.map(scrape, world.cluster.brokers))


def total(pages: list[Seen], name: str, **labels: str) -> float:
    return sum(page.value(name, **labels) for page in pages)


def test_what_went_through_the_cluster_is_counted(loaded: World) -> None:
    pages = scrape_all(loaded)
    topics = "kafka_server_brokertopicmetrics"
    assert total(pages, f"{topics}_messagesin_total", topic="loaded") == RECORDS
    written = total(pages, f"{topics}_bytesin_total", topic="loaded")
    assert written > RECORDS * 100
    assert total(pages, f"{topics}_bytesout_total", topic="loaded") >= written
    assert total(pages, f"{topics}_replicationbytesin_total") >= 2 * written
    assert total(pages, f"{topics}_replicationbytesout_total") >= 2 * written
    asked = total(pages, "kafka_network_requestmetrics_requests_total", request="Produce")
    times = "kafka_network_requestmetrics"
    assert total(pages, f"{times}_totaltimems_count", request="Produce") == asked > 0
    assert total(pages, f"{times}_requestqueuetimems_sum", request="Produce") > 0
    assert total(pages, f"{times}_remotetimems_sum", request="Produce") > 0, "acks=all waits for followers"
    assert total(pages, "kafka_server_replicamanager_leadercount") >= 3
    assert total(pages, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert {page.value("kafka_controller_kafkacontroller_activebrokercount") for page in pages} == {3}


def test_the_dashboard_shows_only_what_there_is(loaded: World) -> None:
    """Each metric and label in its expressions is among the series of a cluster under load."""
    pages = scrape_all(loaded)
    labels: dict[str, set[str]] = {}
    for page in pages:
        for name, known in page.labels.items():
            labels.setdefault(name, set()).update(known)
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 30
    for expression in expressions:
        names = set(re.findall(r"[a-z_]{10,}(?=[{\[)\s]|$)", expression)) - FUNCTIONS
        names = {name for name in names if re.match("kafka|raftlog|process", name)}
        assert names, expression
        assert names <= labels.keys(), f"{expression}: {names - labels.keys()}"
        known = set().union(*(labels[name] for name in names)) | OF_THE_SCRAPE
        selected = set(re.findall(r"(\w+)(?:=~|!=|=)\"", expression))
        grouped = {word for words in re.findall(r"by \(([^)]*)\)", expression) for word in words.split(", ")}
        assert selected | grouped <= known, f"{expression}: {selected | grouped} of {known}"


def test_a_group_without_members_is_told_as_far_behind_as_it_is(loaded: World) -> None:
    pages = scrape_all(loaded)
    labels = {"consumergroup": GROUP, "topic": "loaded", "partition": "0"}
    end = sum(1 for number in range(RECORDS) if number % 3 == 0)
    assert total(pages, "kafka_consumergroup_current_offset", **labels) == COMMITTED
    assert total(pages, "kafka_consumergroup_lag", **labels) == end - COMMITTED
    assert total(pages, "kafka_consumergroup_lag_seconds", **labels) > 0
    assert total(pages, "kafka_consumergroup_members", consumergroup=GROUP) == 0


def test_a_broker_that_is_gone_is_seen_in_the_others(loaded: World) -> None:
    stopped = loaded.cluster.brokers[-1]
    others = loaded.cluster.brokers[:-1]
    stopped.kill()
    manager = "kafka_server_replicamanager"

    def is_seen() -> bool:
        pages = [scrape(broker) for broker in others]
        return total(pages, f"{manager}_underreplicatedpartitions") >= 3 and pages[0].value(
            "kafka_controller_kafkacontroller_fencedbrokercount"
        ) == 1

    wait_until(is_seen, "under-replicated partitions")
    pages = [scrape(broker) for broker in others]
    assert total(pages, f"{manager}_isrshrinks_total") > 0
    assert pages[0].value("kafka_controller_controllerstats_leaderelections_total") > 0
    stopped.start()
    loaded.wait_until_in_sync("loaded")
    wait_until(
        lambda: total([scrape(broker) for broker in others], f"{manager}_isrexpands_total") > 0, "the ISR grows again"
    )
