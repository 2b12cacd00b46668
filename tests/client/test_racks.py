"""Reading from a replica nearby (KIP-392), seen by which broker the records came from."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.client import Client
from raftlog.client.connection import Connection
from raftlog.testing.clusters import Cluster, data_directory
from raftlog.wire.messages.fetch import FetchResponse
from tests.client.reading import read_all

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of brokers that have given records, in their order."""
    found: list[str] = []
    ask = Connection.request

    async def request(connection: Connection, *args: Any, **options: Any) -> Any:
        reply = await ask(connection, *args, **options)
        if isinstance(reply, FetchResponse):
            partitions = [each for topic in reply.responses for each in topic.partitions]
            found.extend(str(connection.address) for each in partitions if each.records)
        return reply

    monkeypatch.setattr(Connection, "request", request)
    return found


@pytest.mark.long
async def test_records_are_read_from_the_replica_in_ones_own_rack(sources: list[str]) -> None:
    with data_directory(None) as directory:
        brokers = Cluster(3, directory, settings={"replica.selector.class": SELECTOR})
        for each in brokers.brokers:
            each.settings["broker.rack"] = f"rack-{each.node_id}"
        try:
            brokers.start()
            async with Client(brokers.bootstrap_servers, timeout=30) as client, client.producer() as producer:
                await client.admin.create_topic("orders", partitions=1, replication_factor=3)
                await producer.send_batch("orders", [b"%d" % number for number in range(10)])
                leader = (await client.admin.topic("orders")).partitions[0].leader_id
                follower = leader % 3 + 1
                expected = {"of-nobody": leader, f"rack-{leader}": leader, f"rack-{follower}": follower}
                for rack, node in expected.items():
                    sources.clear()
                    await read_all(client, "orders", 10, client_rack=rack)
                    assert set(sources) == {brokers.broker(node).address}, rack
                sources.clear()
                await read_all(client, "orders", 10)
                assert set(sources) == {brokers.broker(leader).address}
                brokers.broker(follower).kill()
                sources.clear()
                await read_all(client, "orders", 10, client_rack=f"rack-{follower}")
                assert brokers.broker(follower).address not in sources
            brokers.stop()
        finally:
            brokers.kill()
            brokers.close()
